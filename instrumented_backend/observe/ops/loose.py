"""Ops of threads without marks, over the whole run: windows saw them for a part of the time.

Such a thread calls no graph, and so nothing tells what it did while no window was open: a rate is
all that is known, and chance's windows have it. Where these were few, those after compilations say
more, though what the program did then may be unlike the rest.
"""

from collections.abc import Iterator
from dataclasses import replace

from instrumented_backend.observe.native.structs import Seen
from instrumented_backend.observe.ops.observed import Observed, Part
from instrumented_backend.observe.ops.scaled import FEW, Scaled, together
from instrumented_backend.observe.ops.spread import SPREAD, variance

AWAKE = 0.05  # of certain windows, at least: the main thread may have compiled all the time
SLOWEST = 0.5  # of a window, at least, is the program's own
# By what part such threads are slower in windows, or faster, than what is known to be taken off.
SLOWER = 0.07


def loose(observed: Observed) -> Iterator[Scaled]:
    """What was seen in certain windows, and what stands for the rest of the time."""
    certain, random = observed.loose
    if certain.cells:
        yield Scaled(certain, 1.0, 1.0)
    left_ns = 0.0 if observed.whole else max(0.0, observed.elapsed_ns - certain.seen.ns)
    if random.seen.windows >= FEW or not certain.cells:
        if random.cells and left_ns:
            unseen_ns = max(0.0, left_ns - random.seen.ns)
            yield _times(random, 1 + unseen_ns / _own_ns(observed))
    elif left_ns:
        yield _by_both(observed, left_ns)


def _own_ns(observed: Observed) -> float:
    """Of chance's windows, without what seeing the main thread's ops took there.

    Others wait for it, such as those that load its data, or are held up about as much by being seen
    themselves.
    """
    ops = by_chance = cost_ns = 0.0
    for kind in observed.kinds:
        certain, random = (
            whole.seen.ops + slices.seen.ops
            for whole, slices in zip(kind.whole, kind.slices, strict=True)
        )
        ops += kind.first.seen.ops + certain + random
        by_chance += random
        cost_ns += kind.cost_ns * kind.n[0] / sum(kind.n) if kind.n[0] else 0.0
    window_ns: float = observed.loose[1].seen.ns
    return max(SLOWEST * window_ns, window_ns - (cost_ns * by_chance / ops if ops else 0.0))


def _times(part: Part, factor: float) -> Scaled:
    ops, op_ns = (_variance(part.seen, name, factor) for name in ("ops", "op_ns"))
    return Scaled(part, factor, factor, ops, op_ns)


def _by_both(observed: Observed, left_ns: float) -> Scaled:
    """Where chance saw little. Threads may wait while the main one compiles, or work on."""
    certain, random = (part.seen for part in observed.loose)
    compile_ns = observed.times.main_compile_ns - observed.before.compile_ns
    awake_ns = max(AWAKE * certain.ns, certain.ns - compile_ns)
    scaled = _times(together(list(observed.loose)), left_ns / (awake_ns + random.ns))

    def apart(name: str, estimate: float) -> float:
        """Two standard errors are how far other ways to tell are from the estimate."""
        of_certain, of_random = getattr(certain, name), getattr(random, name)
        others = [left_ns * (of_certain + of_random) / (certain.ns + random.ns)]
        others.append(left_ns * of_random / random.ns if random.ns else 0.0)
        return float(max(abs(estimate - other) for other in others) / SPREAD) ** 2

    return replace(
        scaled,
        ops_variance=scaled.ops_variance + apart("ops", scaled.ops),
        ns_variance=scaled.ns_variance + apart("op_ns", scaled.ns),
    )


def _variance(seen: Seen, name: str, factor: float) -> float:
    """By how far windows differ, and at least as if each op came by chance; all are slower."""
    all_of_it = factor * getattr(seen, name)
    by_chance = all_of_it**2 / max(1.0, seen.ops)
    of_windows = (SLOWER * (1 - 1 / factor) * all_of_it / SPREAD) ** 2 if factor > 1 else 0.0
    return max(float(by_chance), variance(seen, name, factor)) + float(of_windows)
