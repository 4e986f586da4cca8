"""Marks and gaps: what the native part counts for the whole run."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from metering import (
    CERTAIN,
    call,
    finish,
    gaps,
    kinds_after,
    main_ns,
    names,
    place,
    seen,
    whole_after,
)
from paths import SUPPORT
from programs import RunProgram
from torch.utils.data import DataLoader

from instrumented_backend.observe.native import structs
from instrumented_backend.observe.ops.meter import MAIN_GAP
from instrumented_backend.observe.ops.work import done, since

S = 10**9

X = torch.ones(2)


# --- Gaps ---------------------------------------------------------------------------------------


def test_gaps_are_counted_without_a_window(op_meter: Any) -> None:
    for _ in range(5):
        call(op_meter, 3)
        call(op_meter, 4)
    torch.sin(X)
    found = seen(op_meter)
    assert gaps(found) == {((0,), 3): 1, ((3,), 4): 5, ((4,), 3): 4, ((4,), 0): 1}
    assert {key: row.calls for key, row in found.regions.items() if row.calls} == {3: 5, 4: 5}
    parts = [part for kind in found.kinds for part in (*kind.wholes, *kind.slices)]
    assert all(part.seen.n == 0 and part.cells == [] for part in parts)
    assert found.loose[0].cells == found.loose[1].cells == []


def test_all_of_the_main_threads_time_is_in_gaps_and_regions(op_meter: Any) -> None:
    """A window that was there longer bounds it from above, a shorter one from below."""

    def work() -> None:
        for _ in range(50):
            call(op_meter, 1, lambda: torch.sin(X))
            torch.cos(X)
        op_meter.op_meter_quiet(1, True, 0)
        torch.cos(X)
        op_meter.op_meter_quiet(-1, True, 0)

    op_meter.op_meter_open(False)
    op_meter.op_meter_clear()
    work()
    longer = seen(op_meter)
    assert 0 < main_ns(longer) <= longer.times.loose[CERTAIN].ns
    op_meter.op_meter_close()
    op_meter.op_meter_clear()
    op_meter.op_meter_open(False)
    work()
    op_meter.op_meter_close()
    shorter = seen(op_meter)
    assert main_ns(shorter) >= shorter.times.loose[CERTAIN].ns > 0
    row = shorter.regions[1]
    assert shorter.times.main_captured_ns == row.ns >= row.longest_ns > 0


def test_nested_regions(op_meter: Any) -> None:
    call(op_meter, 1, lambda: call(op_meter, 2, lambda: call(op_meter, 1)))
    call(op_meter, 1)
    found = seen(op_meter)
    rows = {key: (row.calls, row.nested) for key, row in found.regions.items()}
    assert rows == {0: (0, 0), 1: (2, 1), 2: (0, 1)}
    assert gaps(found) == {((0,), 1): 1, ((1,), 1): 1, ((1,), 0): 1}
    assert found.regions[2].ns == 0


def test_a_region_that_was_never_entered(op_meter: Any) -> None:
    op_meter.op_meter_leave(5)
    assert gaps(seen(op_meter)) == {((0,), 0): 1}


def test_a_region_with_many_events_makes_none_from_its_next_call_on(op_meter: Any) -> None:
    def many() -> None:
        for _ in range(20):
            torch.neg(X)

    def made(key: int, run: Callable[[], object]) -> int:
        before = done(op_meter).events
        call(op_meter, key, run)
        torch.neg(X)  # heard again
        return int(done(op_meter).events - before)

    op_meter.op_meter_open(0)
    first, later, again = (made(1, many) for _ in range(3))
    few, few_later = (made(2, lambda: torch.neg(X)) for _ in range(2))
    op_meter.op_meter_close()
    assert first > later == again == 1
    assert few == few_later > 1


def test_quiet_time_is_in_no_gap_and_no_region(op_meter: Any) -> None:
    def quiet() -> None:
        op_meter.op_meter_quiet(1, True, 0)
        op_meter.op_meter_quiet(1, True, 0)  # one inside the other
        time.sleep(0.1)
        op_meter.op_meter_quiet(-1, True, 0)
        torch.sin(X)
        op_meter.op_meter_quiet(-1, True, 0)

    def is_in_neither() -> bool:
        op_meter.op_meter_clear()
        op_meter.op_meter_open(True)
        quiet()
        call(op_meter, 1, quiet)
        torch.cos(X)
        found = seen(op_meter)
        op_meter.op_meter_close()
        assert found.times.main_compile_ns >= 0.2e9
        assert names(*[part for kind in found.kinds for part in kind.wholes]) == {"aten::cos": 1}
        (before,) = kinds_after(found, 0)
        return sum(before.ns) < 0.1e9 and before.octave < 26 and found.regions[1].ns < 0.1e9

    assert any(is_in_neither() for _ in range(20))  # a busy machine may hold either up


def test_what_is_read_while_it_is_quiet(op_meter: Any) -> None:
    """The gap under way ends there, and its time is in it once."""
    op_meter.op_meter_open(False)
    op_meter.op_meter_clear()
    op_meter.op_meter_quiet(1, True, 0)
    time.sleep(0.05)
    first = seen(op_meter)
    assert first.times.main_compile_ns >= 0.05e9
    op_meter.op_meter_quiet(-1, True, 0)
    second = seen(op_meter)
    assert second.times.main_compile_ns > first.times.main_compile_ns
    assert main_ns(second) <= second.times.loose[CERTAIN].ns


def test_it_comes_during_a_compilation_of_the_main_thread(op_meter: Any) -> None:
    """Whose time is its gap's so far: what follows is seen whole, and no other thread's gap."""
    long_ago_ns = 1  # after the machine's start
    op_meter.op_meter_begin(long_ago_ns, 5 * S)  # it had compiled before
    op_meter.op_meter_quiet(1, True, long_ago_ns)
    op_meter.op_meter_quiet(-1, True, 0)
    called, opened = threading.Event(), threading.Event()

    def other() -> None:
        call(op_meter, 2)
        called.set()
        opened.wait()
        torch.sin(X)
        call(op_meter, 2)

    thread = threading.Thread(target=other)
    thread.start()
    called.wait()
    op_meter.op_meter_open(MAIN_GAP)
    opened.set()
    finish(thread)
    torch.cos(X)
    call(op_meter, 1)
    found = seen(op_meter)
    (first,) = kinds_after(found, 0, to=1)
    assert first.first.seen.ops == 1 and first.ns[0] < S
    assert found.times.main_compile_ns >= 6 * S
    assert whole_after(found, 2)[1] == 0


def test_the_end_of_a_quiet_time_that_began_before_a_fork(op_meter: Any) -> None:
    op_meter.op_meter_quiet(-1, True, 0)
    op_meter.op_meter_open(True)
    torch.sin(X)
    assert whole_after(seen(op_meter), 0) == (1, 1)


# --- Events -------------------------------------------------------------------------------------


def test_an_optimizers_events_are_marks(op_meter: Any) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimizer = torch.optim.SGD([weight], lr=0.1, foreach=False)
    optimizer.step()  # whatever the first one does
    op_meter.op_meter_clear()
    op_meter.op_meter_open(True)
    for _ in range(3):
        call(op_meter, 1)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    found = seen(op_meter)
    step, zero = "Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad"
    by_place: dict[tuple[Any, ...], int] = {}
    for (begins, _), n in gaps(found).items():
        by_place[begins] = by_place.get(begins, 0) + n
    # Of each call: the gap after it, those that begin with the events, those that end with them.
    assert by_place == {(0,): 1, (1,): 3, (1, step): 6, (1, zero): 6}
    by_event: dict[Any, set[str]] = {}
    for kind in found.kinds:
        by_event.setdefault(found.marks[kind.mark].event, set()).update(names(*kind.wholes))
    assert by_event == {None: set(), step: {"aten::add_"}, zero: {"aten::zero_"}}


def test_other_events_are_no_marks(op_meter: Any) -> None:
    for name in ("Optimizers", "enumerate", "mine"):
        with torch.profiler.record_function(name):
            torch.sin(X)
    assert gaps(seen(op_meter)) == {((0,), 0): 1}


def test_events_inside_a_region_or_a_compilation_are_no_marks(op_meter: Any) -> None:
    def event() -> None:
        with torch.profiler.record_function("Optimizer.step#Mine.step"):
            torch.sin(X)

    call(op_meter, 1, event)
    op_meter.op_meter_quiet(1, True, 0)
    event()
    op_meter.op_meter_quiet(-1, True, 0)
    assert gaps(seen(op_meter)) == {((0,), 1): 1, ((1,), 0): 1}


class _Data(torch.utils.data.Dataset[Any]):
    """Each item takes a call of a graph, and an op."""

    def __init__(self, op_meter: Any) -> None:
        self._op_meter = op_meter

    def __len__(self) -> int:
        return 3

    def __getitem__(self, _: int) -> Any:
        call(self._op_meter, 7)
        return torch.sin(X)


def test_a_dataloader_is_at_work(op_meter: Any) -> None:
    op_meter.op_meter_open(True)
    for _ in DataLoader(_Data(op_meter)):
        call(op_meter, 1)
        torch.cos(X)
    found = seen(op_meter)
    data, rest = set(), set()
    for kind in found.kinds:
        (data if found.marks[kind.mark].in_data else rest).update(names(*kind.wholes))
    assert "aten::sin" in data - rest and "aten::cos" in rest - data
    loading = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    places = {place(found.marks[kind.mark]) for kind in found.kinds}
    # Its end is a mark too, where it is at work no more; and so is the graph that it calls.
    assert places == {
        *((0,), (0, loading, "data"), (7, "data"), (7, loading)),
        *((1,), (1, loading, "data"), (1, loading)),  # the last, which finds no more data
    }


def test_data_inside_data(op_meter: Any) -> None:
    name = "enumerate(DataLoader)#Mine.__next__"
    with torch.profiler.record_function(name):
        with torch.profiler.record_function(name):
            pass
        call(op_meter, 7)
    call(op_meter, 1)
    found = gaps(seen(op_meter))
    assert found[(7, "data"), min(to for _, to in found) + 1] == 1  # up to the outer one's end
    assert found[(7, name), 1] == 1


@pytest.mark.full
def test_more_events_than_are_told_apart(run_program: RunProgram) -> None:
    """In a process of its own: their numbers last as long as it does."""
    done = run_program(
        f"""
        import sys, torch
        sys.path.insert(0, {str(SUPPORT)!r})
        from metering import seen
        from instrumented_backend.observe.native import build
        lib = build.load()
        lib.op_meter_begin(0, 0)
        lib.op_meter_clear()
        for i in range(100):
            with torch.profiler.record_function(f"Optimizer.step#Mine{{i}}.step"):
                pass
        print(len({{mark.event for mark in seen(lib).marks if mark.event}}))
        print(lib.op_meter_event(100), lib.op_meter_event(-1))
        """
    )
    assert done.stdout.split() == ["63", "None", "None"]


def test_events_that_are_measured_are_seen_by_nobody(op_meter: Any) -> None:
    """After some ops, to know what PyTorch takes for one; a profiler is on that began later."""
    before = done(op_meter)
    op_meter.op_meter_open(False)
    with torch.autograd.profiler.profile() as profile:
        for _ in range(500):
            torch.sin(X)
    for _ in range(500):
        torch.sin(X)
    op_meter.op_meter_close()
    events = Counter(event.name for event in profile.function_events)
    assert events == {"aten::sin": 500}
    work = since(op_meter, before)
    assert (work.ops, work.events) == (1000, 1000)


def test_sums_of_squares_are_over_windows(op_meter: Any) -> None:
    """Of each kind of gap, of what each of two windows saw; of its time, too."""

    def window() -> dict[tuple[int, int], structs.Seen]:
        op_meter.op_meter_open(False)
        for _ in range(50):
            call(op_meter, 1)
            torch.sin(X)
            call(op_meter, 2)
        op_meter.op_meter_close()
        kinds = kinds_after(seen(op_meter), 1)
        return {(kind.edge, kind.octave): kind.whole[CERTAIN].seen for kind in kinds}

    both: list[tuple[structs.Seen, structs.Seen]] = []
    for _ in range(20):  # on a busy machine those of one window may all take longer
        op_meter.op_meter_clear()
        before, after = window(), window()
        both = [
            (first, after[place])
            for place, first in before.items()
            if (first.windows, after[place].windows) == (1, 2)
        ]
        if both:
            break
    assert both
    for first, all_seen in both:
        for one, other, sums in (
            ("ops", "n", all_seen.ops_n),
            ("ns", "ns", all_seen.ns2),
            ("op_ns", "ns", all_seen.op_ns_ns),
        ):
            each = [
                (getattr(first, name), getattr(all_seen, name) - getattr(first, name))
                for name in (one, other)
            ]
            assert sums == pytest.approx(sum(a * b for a, b in zip(*each, strict=True)))
