"""How uncertain it is what windows saw only a part of: by how far that differs among itself."""

from instrumented_backend.observe.native.structs import Seen

SPREAD = 2.0  # standard errors, to either side
MANY = 8  # windows
DRIFTS = 0.5  # times as far apart as all are from the mean, at most: seldom so by chance
SKEW = 1.15  # what windows see is spread less evenly than Student's t has it
# For few windows, twice the standard error is less than 19 in 20 (Student's t).
_STUDENT = (12.7, 4.3, 3.2, 2.8, 2.6, 2.45, 2.4, 2.3, 2.3)


def variance(seen: Seen, name: str, factor: float) -> float:
    """Of ``factor`` times the sum over what was seen, by how far that differs among itself.

    Each window is one draw of n gaps (or seconds) with x ops: of their ratio r, the residuals
    x - r·n vary. Gaps vary, too, and one window tells of nothing else. Where one gap has been seen,
    its ops are as uncertain as their square root.
    """
    total, windows = getattr(seen, name), seen.windows
    if not total or not seen.n:
        return 0.0
    if windows < 2 and seen.n < 2:
        return float((factor * total) ** 2 / max(1.0, seen.ops))
    of_gaps = variance_of_gaps(seen, name, factor)
    return of_gaps if windows < 2 else max(of_gaps, variance_of_windows(seen, name, factor))


def variance_of_windows(seen: Seen, name: str, factor: float) -> float:
    """The same by how far two windows or more differ, and not by how far gaps do."""
    residuals = _of_all(seen, name)
    if seen.windows >= MANY and seen.pairs >= seen.windows / 2:
        # What a program does changes as it goes on, and windows are all over it: each is off by as
        # much as it differs from the next one.
        apart = _residuals(seen, name, of="apart_") * seen.windows / seen.pairs
        if apart < DRIFTS * residuals:
            residuals = apart
    return (factor * _certainty(seen)) ** 2 * residuals


def variance_by_time(seen: Seen, factor: float) -> float:
    """Of ``factor`` times the time in ops, by how far its share of all time differs in windows."""
    return (factor * _certainty(seen, "ns")) ** 2 * _of_all(seen, "op_ns", "ns")


def _alike(seen: Seen, by: str) -> float:
    """Windows differ in length: as good as so many of one length."""
    total = getattr(seen, by)
    return float(max(2.0, total * total / getattr(seen, f"{by}2")))


def _certainty(seen: Seen, by: str = "n") -> float:
    return _student(_alike(seen, by) - 1) / SPREAD


def _of_all(seen: Seen, name: str, by: str = "n") -> float:
    alike = _alike(seen, by)
    return _residuals(seen, name, by) * alike / (alike - 1)


def _residuals(seen: Seen, name: str, by: str = "n", of: str = "") -> float:
    """Of all windows, or of by how much they are ``apart_`` from the ones before: their squares."""
    squares, products = getattr(seen, f"{of}{name}2"), getattr(seen, f"{of}{name}_{by}")
    ratio = getattr(seen, name) / getattr(seen, by)
    by2 = getattr(seen, f"{of}{by}2")
    return float(max(0.0, squares - 2 * ratio * products + ratio * ratio * by2))


def variance_of_gaps(seen: Seen, name: str, factor: float) -> float:
    """The same by the gaps; 0 of slices, which are none."""
    squares = getattr(seen, f"each_{name}2")
    if seen.n < 2 or not squares:
        return 0.0
    mean = getattr(seen, name) / seen.n
    residuals = max(0.0, squares - seen.n * mean * mean)
    student = _student(seen.n - 1) / SPREAD
    return float((factor * student) ** 2 * residuals * seen.n / (seen.n - 1))


def _student(freedom: float) -> float:
    """How many standard errors hold the truth 19 times in 20."""
    known = int(freedom) - 1
    exact = _STUDENT[known] if known < len(_STUDENT) else 1.96 + 2.8 / freedom
    return SKEW * exact
