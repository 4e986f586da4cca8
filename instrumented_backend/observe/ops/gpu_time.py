"""GPUs' time over the whole run, by what windows saw of their calls."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instrumented_backend.observe.native.structs import GpuCallRow, GpuTimeRow, RegionRow, Seen
from instrumented_backend.observe.ops.gpu_seen import GpuSeen
from instrumented_backend.observe.ops.spread import SPREAD, variance, variance_of_windows

CERTAIN, RANDOM = range(2)
ENOUGH_NS = 2e7  # that random windows saw of a GPU, to tell what it is bound by without the others

# Of a GPU's time in calls that were not seen: windows make the host slower, between calls more than
# in them, and by that the GPU's clock at each call's ends moves.
SEEING = 0.04
# What the GPU's time in calls, or the share of those at once, may differ from the host's, in parts
# of it, and be taken for it.
LIKE_HOST = 0.05


@dataclass
class GpuEstimate:
    """One GPU's time in calls over the whole run, in nanoseconds."""

    device: int
    captured_ns: float
    error_ns: float  # one standard error
    idle_share: float  # of the time between calls, before the host's first op
    behind_share: float | None  # of the time, the GPU was behind the host
    # What it took, while behind, for what the host asked for: in parts of the time of the asking.
    work_share: float | None
    late_ns: float  # how far on average, when a call ended on the host
    calls: int
    calls_seen: float
    by_key: dict[int, float]  # in nanoseconds, by `region_key`

    @property
    def spread_ns(self) -> float:
        return SPREAD * self.error_ns


@dataclass(frozen=True)
class CallTime:
    """All calls of one direction on its GPU."""

    ns: float
    variance: float
    seen: float  # calls

    @property
    def error(self) -> float:
        return math.sqrt(self.variance)


def call_time(row: GpuCallRow, region: RegionRow) -> CallTime | None:
    """None where no call was seen. Calls of certain windows stand for themselves.

    The others took as long as those that chance saw, on average; or, where that varies less, as
    long as the host's time in them, which is known of all, and the mean difference between the two:
    there is next to none where the GPU waits for the host. Where chance saw none, calls of certain
    windows stand for the others; and where only the very first was seen, the host's time does.
    """
    certain, random = row.seen
    has_first = row.first_ns >= 0
    seen = certain.n + random.n + has_first
    if not seen:
        return None
    known_ns = certain.op_ns + max(0.0, row.first_ns)
    others = region.calls - certain.n - has_first
    if others <= 0:
        return CallTime(known_ns, 0.0, seen)
    # What was measured round a call is a little more than the region's own time.
    others_host_ns = max(0.0, region.ns - row.host_ns[CERTAIN] - row.first_host_ns)
    source: Seen = random if random.n else certain
    if not source.n:
        return CallTime(known_ns + others_host_ns, (others_host_ns / SPREAD) ** 2, seen)
    factor = others / source.n
    unseen = max(0.0, others - random.n) / others
    by_mean = factor * source.op_ns, variance(source, "op_ns", factor)
    by_host = max(0.0, others_host_ns + factor * source.ops), variance(source, "ops", factor)
    if source.windows < 2:  # nothing tells which varies less, but how far they are apart
        is_like_host = abs(source.ops) < LIKE_HOST * source.op_ns
        others_ns, _ = by_host if is_like_host else by_mean
        its_variance = ((by_mean[0] - by_host[0]) / SPREAD) ** 2
    else:
        others_ns, its_variance = min(by_mean, by_host, key=lambda found: found[1])
    return CallTime(known_ns + others_ns, its_variance * unseen, seen)


def gpu_estimates(seen: GpuSeen, regions: Mapping[int, RegionRow]) -> list[GpuEstimate]:
    """Of each GPU that calls were seen on."""
    found = []
    for times in seen.times:
        rows = [row for row in seen.calls if row.device == times.device and row.key in regions]
        parts = {row.key: call_time(row, regions[row.key]) for row in rows}
        known = {key: part for key, part in parts.items() if part is not None}
        if not known:
            continue
        # Of a region without any call that was seen, the host's time stands for the GPU's.
        unseen_ns = sum(float(regions[key].ns) for key, part in parts.items() if part is None)
        chosen = RANDOM if times.seen_ns[RANDOM] >= ENOUGH_NS else None
        first_ns = sum(max(0.0, row.first_ns) for row in rows)
        certain_ns = sum(row.seen[CERTAIN].op_ns for row in rows)
        others_ns = sum(part.ns for part in known.values()) + unseen_ns - certain_ns - first_ns
        known_overlap, overlap, its_error = _overlaps(times, rows, regions)
        its_error = math.hypot(its_error, SEEING * overlap / SPREAD)
        found.append(
            GpuEstimate(
                device=times.device,
                captured_ns=first_ns + known_overlap * certain_ns + overlap * others_ns,
                # The same windows saw them all: they err together.
                error_ns=overlap * (sum(part.error for part in known.values()) + unseen_ns / SPREAD)
                + its_error * others_ns,
                idle_share=_share(times.idle_ns, times.gap_ns, chosen) or 0.0,
                behind_share=_share(times.behind_ns, times.seen_ns, chosen),
                work_share=_share(times.work_ns, times.asking_ns, chosen, math.inf),
                late_ns=_share(times.late_ns, times.ends, chosen, math.inf) or 0.0,
                calls=sum(regions[row.key].calls for row in rows),
                calls_seen=sum(part.seen for part in known.values()),
                by_key={key: part.ns for key, part in known.items()},
            )
        )
    return found


def _overlaps(
    times: GpuTimeRow, rows: Sequence[GpuCallRow], regions: Mapping[int, RegionRow]
) -> tuple[float, float, float]:
    """Calls at once, on several streams or threads, are one piece of the timeline: of how much.

    Of the calls of certain windows, and of the others, with the standard error of that. Graphs'
    first calls, which take long, have none beside them.

    As in `call_time`: as many of the others were at once as of those that chance saw; or as on the
    host, where that is known of all, and the mean difference between the two.
    """
    certain, random = times.at_once
    others = random if random.n else certain
    known = certain if certain.n else random
    of_known, by_mean = _ratio(known.ops, known.n, 1.0), _ratio(others.ops, others.n, 1.0)
    if not others.n:
        return of_known, by_mean, 0.0
    differs = others.op_ns / others.n
    by_host = min(1.0, max(0.0, _overlap_on_host(times, rows, regions) + differs))
    if others.windows < 2:  # nothing tells of other windows, but how far the two are apart
        is_like_host = abs(differs) < LIKE_HOST
        error = max(abs(by_host - by_mean), abs(differs)) / SPREAD
        return of_known, by_host if is_like_host else by_mean, error
    error, host_error = (_overlap_error(others, name) for name in ("ops", "op_ns"))
    overlap, error = min((by_mean, error), (by_host, host_error), key=lambda found: found[1])
    return of_known, overlap, error


def _overlap_on_host(
    times: GpuTimeRow, rows: Sequence[GpuCallRow], regions: Mapping[int, RegionRow]
) -> float:
    """The same of all calls that no certain window saw, by the host's clock."""
    certain = times.at_once[CERTAIN]
    certain_ns = sum(row.host_ns[CERTAIN] for row in rows)
    others_ns = sum(regions[row.key].ns - row.first_host_ns for row in rows) - certain_ns
    of_certain = _ratio(certain.ops - certain.op_ns, certain.n, 1.0)
    more_ns = times.more_ns - (1 - of_certain) * certain_ns
    return 1 - _ratio(max(0.0, more_ns), others_ns, 0.0)


def _overlap_error(seen: Seen, name: str) -> float:
    return float(math.sqrt(variance_of_windows(seen, name, 1.0)) / seen.n)


def _share(part: Any, whole: Any, chosen: int | None, most: float = 1.0) -> float | None:
    """In the random windows, or in all; None where there is nothing."""
    if chosen is not None:
        part, whole = [part[chosen]], [whole[chosen]]
    total = sum(whole)
    return min(most, sum(part) / total) if total else None


def _ratio(part: float, whole: float, default: float) -> float:
    return min(1.0, part / whole) if whole > 0 else default
