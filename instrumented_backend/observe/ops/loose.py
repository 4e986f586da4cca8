"""Ops of threads without marks, over the whole run: windows saw them for a part of the time.

Such a thread calls no graph, and so nothing tells what it did while no window was open: a rate is
all that is known, and chance's windows have it. Where these were few, those after compilations say
more, though what the program did then may be unlike the rest.
"""

from collections.abc import Iterator
from dataclasses import replace

from instrumented_backend.observe.native.build import Seen
from instrumented_backend.observe.ops.observed import Observed
from instrumented_backend.observe.ops.scaling import Scaled, together
from instrumented_backend.observe.ops.spread import SPREAD, variance

FEW = 8  # windows


def loose(observed: Observed) -> Iterator[Scaled]:
    """What was seen in certain windows, and what stands for the rest of the time."""
    certain, random = observed.loose
    if certain.cells:
        yield Scaled(certain, 1.0, 1.0)
    left_ns = 0.0 if observed.whole else max(0.0, observed.elapsed_ns - certain.seen.ns)
    is_enough = random.seen.windows >= FEW or not certain.cells
    source = random if is_enough else together(observed.loose)
    if not source.cells or not source.seen.ns or not left_ns:
        return
    factor = left_ns / source.seen.ns
    scaled = Scaled(
        source,
        factor,
        factor,
        _variance(source.seen, "ops", factor),
        _variance(source.seen, "op_ns", factor),
    )
    if not is_enough:
        ops = _apart(certain.seen, random.seen, "ops", left_ns, scaled.ops)
        op_ns = _apart(certain.seen, random.seen, "op_ns", left_ns, scaled.ns)
        scaled = replace(
            scaled,
            ops_variance=scaled.ops_variance + ops,
            ns_variance=scaled.ns_variance + op_ns,
        )
    yield scaled


def _variance(seen: Seen, name: str, factor: float) -> float:
    """By how far windows differ, and at least as if each op came by chance."""
    by_chance = (factor * getattr(seen, name)) ** 2 / max(1.0, seen.ops)
    return max(float(by_chance), variance(seen, name, factor))


def _apart(certain: Seen, random: Seen, name: str, left_ns: float, estimate: float) -> float:
    """Two standard errors are how far the two are apart; or all, where chance saw nothing."""
    if not random.ns:
        return (estimate / SPREAD) ** 2
    rates = [getattr(seen, name) / seen.ns for seen in (certain, random)]
    return float((left_ns * (rates[0] - rates[1]) / SPREAD) ** 2)
