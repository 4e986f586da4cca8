"""GPUs' time over the whole run, from what windows saw of it; values made by hand."""

import math
import random
from collections.abc import Iterable

import pytest

from instrumented_backend.observe.native.structs import (
    GpuCallRow,
    GpuOpRow,
    GpuTimeRow,
    RegionRow,
    Seen,
)
from instrumented_backend.observe.ops.gpu_seen import GpuOps, GpuSeen
from instrumented_backend.observe.ops.gpu_time import (
    CERTAIN,
    RANDOM,
    SEEING,
    SPREAD,
    CallTime,
    call_time,
    gpu_estimates,
)

MS = 1e6
Calls = Iterable[tuple[float, float]]  # on the GPU and on the host, in milliseconds


def sums(windows: Iterable[Calls]) -> tuple[Seen, float]:
    """As the native part has them: `ops` is the difference of the two times."""
    seen, host_ns = Seen(), 0.0
    for calls in windows:
        n, gpu, differs = 0, 0.0, 0.0
        for gpu_ms, host_ms in calls:
            n += 1
            gpu += gpu_ms * MS
            differs += (gpu_ms - host_ms) * MS
            host_ns += host_ms * MS
        seen.add(
            Seen(
                *(n, gpu, differs, gpu, 1.0),
                *(n * n, differs * differs, differs * n, gpu * gpu, gpu * n),
            )
        )
    return seen, host_ns


def row(
    certain: Iterable[Calls] = (),
    chance: Iterable[Calls] = (),
    first: tuple[float, float] | None = None,
    key: int = 0,
    device: int = 0,
) -> GpuCallRow:
    seen, host_ns = zip(sums(certain), sums(chance), strict=True)
    made = GpuCallRow(key, device, -1.0 if first is None else first[0] * MS)
    made.seen[CERTAIN], made.seen[RANDOM] = seen
    made.host_ns[CERTAIN], made.host_ns[RANDOM] = host_ns
    made.first_host_ns = 0.0 if first is None else first[1] * MS
    return made


def region(calls: int, host_ms: float) -> RegionRow:
    return RegionRow(calls, 0, int(host_ms * MS), 0)


def time_of(made: GpuCallRow, all_calls: RegionRow) -> CallTime:
    found = call_time(made, all_calls)
    assert found is not None
    return found


def test_a_graph_of_which_no_call_was_seen_takes_as_long_as_on_the_host() -> None:
    """It may be as wrong as that is long; and its own time is not known."""
    times = GpuTimeRow(device=0)
    seen = GpuSeen([times], [row([[(2, 1)] * 4, [(2, 1)] * 4]), row(key=1)])
    (found,) = gpu_estimates(seen, {0: region(8, 8), 1: region(1, 5000)})
    assert found.captured_ns == pytest.approx((16 + 5000) * MS)
    assert found.spread_ns == pytest.approx((1 + SEEING) * 5000 * MS)
    assert found.by_key == {0: pytest.approx(16 * MS)} and found.calls == 9


def test_all_calls_seen() -> None:
    found = time_of(row([[(3, 1), (5, 1)]], first=(40, 41)), region(3, 43))
    assert (found.ns, found.variance, found.seen) == (48 * MS, 0, 3)


def test_a_gpu_that_is_behind() -> None:
    """4 ms each there, while the host's time says nothing: 0.5, 1.5, 1, 3 ms in four windows."""
    windows = [[(4, 0.5)] * 2, [(4, 1.5)] * 2, [(4, 1)] * 2, [(4, 3)] * 2]
    found = time_of(row(chance=windows), region(100, 400))
    assert found.ns == pytest.approx(400 * MS)
    assert found.variance == 0


def test_a_gpu_that_waits_for_the_host() -> None:
    """As long as the host each time, and that is known of all calls: 2, 4, 3, 9 ms were seen."""
    windows = [[(ms, ms)] * 2 for ms in (2, 4, 3, 9)]
    found = time_of(row(chance=windows), region(100, 350))
    assert found.ns == pytest.approx(350 * MS)
    assert found.variance == 0


def test_certain_windows_stand_for_themselves() -> None:
    """The first calls took 50 and 20 ms; each of the other 98 takes 1 ms."""
    made = row([[(20, 20)]], [[(1, 0.1)] * 4, [(1, 0.3)] * 4], first=(50, 50))
    found = time_of(made, region(100, 90))
    assert found.ns == pytest.approx((50 + 20 + 98) * MS)
    assert found.seen == 10


def test_where_chance_saw_none() -> None:
    found = time_of(row([[(2, 1)] * 5, [(2, 0.5)] * 5]), region(30, 20))
    assert found.ns == pytest.approx(60 * MS)


def test_only_the_very_first_seen() -> None:
    """The host's time stands for the other nine, and may be as wrong as it is long."""
    found = time_of(row(first=(50, 50)), region(10, 68))
    assert found.ns == pytest.approx((50 + 18) * MS)
    assert SPREAD * math.sqrt(found.variance) == pytest.approx(18 * MS)


def test_one_window() -> None:
    """Its two estimates differ: 90 calls at 4 ms, and what the host says, 3 ms more each."""
    found = time_of(row(chance=[[(4, 1)] * 10]), region(90, 180))
    assert found.ns == pytest.approx(360 * MS)
    assert SPREAD * math.sqrt(found.variance) == pytest.approx((450 - 360) * MS * 80 / 90, rel=0.1)


def test_none_seen() -> None:
    assert call_time(row(), region(10, 10)) is None


def test_the_truth_is_in_the_spread() -> None:
    """Calls of 1 to 9 ms, in eight windows of five calls each among a thousand."""
    chance = random.Random(5)
    inside = 0
    for _ in range(400):
        calls = [(chance.uniform(1, 9), chance.uniform(0.5, 1.5)) for _ in range(1000)]
        starts = [chance.randrange(995) for _ in range(8)]
        made = row(chance=[calls[start : start + 5] for start in starts])
        found = time_of(made, region(1000, sum(host for _, host in calls)))
        truth_ns = MS * sum(gpu for gpu, _ in calls)
        inside += abs(found.ns - truth_ns) <= SPREAD * math.sqrt(found.variance)
    assert inside >= 0.95 * 400


def seen(*calls: GpuCallRow, **times: float) -> GpuSeen:
    made = GpuTimeRow(0)
    for name, ms in times.items():
        getattr(made, f"{name}_ns")[RANDOM] = ms * MS
    return GpuSeen([made], list(calls))


def at_once(*windows: tuple[float, ...]) -> Seen:
    """What calls took in each, and those at once counted once, in milliseconds; and, where other
    than all of it, the latter by the host's clock."""
    found = Seen()
    for all_ms, ms, *by_host in windows:
        host_ms = by_host[0] if by_host else all_ms
        n, ops, longer = all_ms * MS, ms * MS, (ms - host_ms) * MS
        found.add(
            Seen(
                *(n, ops, ops, longer, 1.0),
                *(n * n, ops * ops, ops * n, longer * longer, longer * n),
            )
        )
    return found


def test_calls_at_once_on_two_streams() -> None:
    """Of two seconds of calls, half a second was double."""
    made = seen(
        row(chance=[[(10, 10)] * 5] * 2),
        row(chance=[[(10, 10)] * 5] * 2, key=1),
        seen=300,
    )
    made.times[0].at_once[RANDOM] = at_once((120, 90), (80, 60))
    (found,) = gpu_estimates(made, {0: region(100, 1000), 1: region(100, 1000)})
    assert found.captured_ns == pytest.approx(1500 * MS)
    assert found.by_key == {0: pytest.approx(1000 * MS), 1: pytest.approx(1000 * MS)}
    assert found.spread_ns == pytest.approx(SEEING * 1500 * MS)


def test_windows_that_differ_in_how_many_calls_are_at_once() -> None:
    """All were, two by two, in the one; none in the other."""
    made = seen(row(chance=[[(10, 10)] * 5] * 2))
    made.times[0].at_once[RANDOM] = at_once((50, 25), (50, 50))
    (found,) = gpu_estimates(made, {0: region(100, 1000)})
    assert found.captured_ns == pytest.approx(750 * MS)
    # One degree of freedom: the spread is more than the ratios' distance.
    assert found.spread_ns > 250 * MS


def test_one_window_tells_nothing_of_how_many_calls_are_at_once_in_others() -> None:
    made = seen(row(chance=[[(10, 10)] * 5] * 2))
    made.times[0].at_once[RANDOM] = at_once((100, 60))
    (found,) = gpu_estimates(made, {0: region(100, 1000)})
    assert found.captured_ns == pytest.approx(600 * MS)
    assert found.spread_ns == pytest.approx(math.hypot(400, SEEING * 600) * MS)


@pytest.mark.parametrize("chance, others_ms", [(False, 800 * 0.5), (True, 750 * 0.25)])
def test_first_calls_have_none_beside_them(chance: bool, others_ms: float) -> None:
    """A second for the first, on its own; then, on streams, two by two at once, or four."""
    windows = [[(10, 10)] * 5] if chance else ()
    made = seen(row([[(10, 10)] * 20], windows, first=(1000, 1000)))
    times = made.times[0]
    times.at_once[CERTAIN] = at_once((200, 100))
    if chance:
        times.at_once[RANDOM] = at_once((50, 12.5))
    calls = 1 + 20 + (75 if chance else 80)
    (found,) = gpu_estimates(made, {0: region(calls, 1000 + 10 * (calls - 1))})
    assert found.captured_ns == pytest.approx((1100 + others_ms) * MS)


@pytest.mark.parametrize("windows", [[(50, 25, 25)], [(50, 25, 25), (50, 40, 40)]])
def test_threads_call_at_once_as_the_host_tells(windows: list[tuple[float, ...]]) -> None:
    """The GPU waits for them. The first is on its own; of 200 ms of certain windows, half is at
    once with the other half; of the other 750, 450 are with others, of which windows saw less."""
    made = seen(row([[(10, 10)] * 20], [[(10, 10)] * 5] * 2, first=(1000, 1000)))
    times = made.times[0]
    times.at_once[CERTAIN] = at_once((200, 100, 100))
    times.at_once[RANDOM] = at_once(*windows)
    times.more_ns = (100 + 450) * MS
    (found,) = gpu_estimates(made, {0: region(1 + 20 + 75, 1000 + 950)})
    assert found.captured_ns == pytest.approx((1000 + 100 + 300) * MS)


def test_threads_call_at_once_what_a_gpu_that_is_behind_runs_one_by_one() -> None:
    """The host tells nothing of that; windows do, which don't differ."""
    made = seen(row(chance=[[(10, 1)] * 5] * 3))
    made.times[0].at_once[RANDOM] = at_once((50, 50, 20), (50, 50, 45), (50, 50, 30))
    made.times[0].more_ns = 60 * MS
    (found,) = gpu_estimates(made, {0: region(100, 100)})
    assert found.captured_ns == pytest.approx(1000 * MS)
    assert found.spread_ns == pytest.approx(SEEING * 1000 * MS)


def test_shares_of_the_windows() -> None:
    made = seen(
        row(chance=[[(10, 10)] * 5] * 2),
        seen=200,
        behind=150,
        gap=80,
        idle=20,
    )
    (found,) = gpu_estimates(made, {0: region(10, 100)})
    assert (found.behind_share, found.idle_share) == (0.75, 0.25)
    assert (found.calls, found.calls_seen, found.late_ns) == (10, 10, 0)


def test_how_late_the_gpu_is() -> None:
    made = seen(row(chance=[[(10, 10)] * 5] * 2))
    made.times[0].ends[RANDOM], made.times[0].late_ns[RANDOM] = 4, 80 * MS
    (found,) = gpu_estimates(made, {0: region(10, 100)})
    assert found.late_ns == 20 * MS


def test_two_devices() -> None:
    made = seen(row(chance=[[(10, 10)] * 5] * 2), row(chance=[[(3, 3)] * 5] * 2, key=1, device=1))
    made.times.append(GpuTimeRow(1))
    found = gpu_estimates(made, {0: region(10, 100), 1: region(10, 30)})
    assert [(gpu.device, round(gpu.captured_ns / MS)) for gpu in found] == [(0, 100), (1, 30)]


def test_ops_by_their_place_or_else_by_their_name() -> None:
    made = GpuSeen(by_cell={(1, 2): GpuOps(2, 10.0)}, by_name={"aten::add": GpuOps(4, 40.0)})
    assert made.mean_ns(1, 2, "aten::add") == 5
    assert made.mean_ns(1, 3, "aten::add") == 10
    assert made.mean_ns(1, 3, "aten::mul") is None


def test_sums_of_ops() -> None:
    timed = GpuOps()
    for ns in (100.0, 300.0):
        timed.add(GpuOpRow(0, 0, b"aten::add", 2, ns))
    assert (timed.n, timed.ns) == (4, 400)
