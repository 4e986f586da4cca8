"""Threads, forks and all at once: whose gaps and ops they are."""

import threading
import time
from typing import Any

import pytest
import torch
from metering import (
    CERTAIN,
    HOUR_NS,
    RANDOM,
    call,
    end_window,
    finish,
    gaps,
    kinds_after,
    later,
    names,
    on_thread,
    seen,
    whole_after,
)
from paths import SUPPORT
from programs import RunProgram
from speeds import full_but

from instrumented_backend.observe.native import structs
from instrumented_backend.observe.ops.estimate import estimate
from instrumented_backend.observe.ops.observed import Copied

X = torch.ones(2)


# --- Marks that are noted, and booked later -----------------------------------------------------


def test_what_was_noted_comes_before_what_a_window_sees(op_meter: Any) -> None:
    call(op_meter, 1)
    call(op_meter, 2)
    op_meter.op_meter_open(False)
    torch.sin(X)
    call(op_meter, 1)
    torch.cos(X)
    call(op_meter, 2)
    op_meter.op_meter_close()
    call(op_meter, 1)
    found = seen(op_meter)
    assert gaps(found) == {((0,), 1): 1, ((1,), 2): 2, ((2,), 1): 2, ((1,), 0): 1}
    assert (found.regions[1].calls, found.regions[2].calls) == (3, 2)
    assert whole_after(found, 1) == (1, 1)  # not the one that had begun before the window


def test_more_is_noted_than_there_is_room_for(op_meter: Any) -> None:
    for _ in range(1000):
        call(op_meter, 1)
    call(op_meter, 2)
    found = seen(op_meter)
    assert gaps(found) == {((0,), 1): 1, ((1,), 1): 999, ((1,), 2): 1, ((2,), 0): 1}
    assert found.regions[1].ns + found.regions[2].ns == found.times.main_captured_ns


def test_a_compilation_in_a_gap_that_was_noted(op_meter: Any) -> None:
    call(op_meter, 1)
    op_meter.op_meter_quiet(1, True, 0)
    time.sleep(0.02)
    op_meter.op_meter_quiet(-1, True, 0)
    call(op_meter, 1)
    (kind,) = kinds_after(found := seen(op_meter), 1, 1)
    assert kind.ns[0] < 0.02e9 <= found.times.main_compile_ns


def test_threads_note_while_others_read_and_windows_come_and_go(op_meter: Any) -> None:
    each, threads = 20_000, 3
    ended = threading.Event()

    def other(key: int) -> None:
        for _ in range(each):
            op_meter.op_meter_enter(key)
            op_meter.op_meter_leave(key)

    def read() -> None:
        while not ended.is_set():
            seen(op_meter)
            op_meter.op_meter_open(False)
            op_meter.op_meter_close()

    reader = threading.Thread(target=read)
    others = [threading.Thread(target=other, args=(5 + number,)) for number in range(threads)]
    for thread in (reader, *others):
        thread.start()
    for thread in others:
        finish(thread)
    ended.set()
    finish(reader)
    found = seen(op_meter)
    assert {found.regions[5 + number].calls for number in range(threads)} == {each}
    for key in range(5, 5 + threads):
        assert sum(kind.n[1] for kind in kinds_after(found, key, key)) == each - 1
    assert found.times.other_captured_ns == sum(row.ns for row in found.regions.values())


# --- Threads ------------------------------------------------------------------------------------


def test_threads_with_marks_have_gaps_of_their_own(op_meter: Any) -> None:
    op_meter.op_meter_open(False)

    def other() -> None:
        for _ in range(3):
            call(op_meter, 5)
            torch.sin(X)

    call(op_meter, 1)
    on_thread(other)
    torch.cos(X)
    call(op_meter, 1)
    found = seen(op_meter)
    # The thread's last gap ends with it.
    assert gaps(found) == {
        **{((0,), 1): 1, ((1,), 1): 1, ((1,), 0): 1},
        **{((5,), 5): 2, ((5,), 0): 1},
    }
    assert {kind.n for kind in kinds_after(found, 5, 0)} == {(0, 1)}
    assert whole_after(found, 5) == (3, 3) and whole_after(found, 1) == (2, 1)
    times = found.times
    assert times.other_captured_ns == found.regions[5].ns > 0
    assert times.main_captured_ns == found.regions[1].ns > 0


def test_threads_without_marks(op_meter: Any) -> None:
    on_thread(lambda: torch.tanh(X))
    op_meter.op_meter_open(False)
    on_thread(lambda: [torch.sin(X), torch.sin(X), torch.cos(X)])
    found = seen(op_meter)
    assert names(found.loose[CERTAIN]) == {"aten::sin": 2, "aten::cos": 1}
    assert found.loose[RANDOM].cells == []
    assert whole_after(found, 0) == (0, 0)
    assert sum(kind.n[1] for kind in found.kinds) == 0


def test_threads_without_marks_are_read_without_the_others(op_meter: Any) -> None:
    """As most snapshots do."""
    op_meter.op_meter_open(False)
    call(op_meter, 1)
    torch.tanh(X)
    on_thread(lambda: [torch.sin(X), torch.sin(X), torch.cos(X)])
    call(op_meter, 2)
    found = Copied.of(op_meter, listed=False).observed([], whole=False, elapsed_ns=0)
    assert names(*found.loose) == {"aten::sin": 2, "aten::cos": 1}
    assert whole_after(found, 1) == (1, 1)
    assert names(*(part for kind in found.kinds for part in kind.wholes)) == {}


class GoingOn:
    """The native part of a program that calls a new graph before each time that rows are read."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        self._graphs = 1000

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._lib, name)

        def read(rows: Any, size: int) -> Any:
            self._graphs += 1
            call(self._lib, self._graphs)
            torch.sin(X)
            return function(rows, size)

        of_rows = ("marks", "kinds", "cells", "samples", "regions", "gpu_ops", "gpu_calls")
        return read if name.removeprefix("op_meter_") in of_rows else function


def test_a_program_that_goes_on_while_it_is_read(op_meter: Any) -> None:
    op_meter.op_meter_open(False)
    for graph in range(1, 300):
        call(op_meter, graph)
    found = seen(GoingOn(op_meter))
    assert {kind.mark for kind in found.kinds} <= set(range(len(found.marks)))
    assert {mark.region for mark in found.marks} <= set(found.regions)
    assert len(found.kinds) >= 299
    assert estimate(found).eager.ops >= 1


def test_threads_of_the_autograd_engine_work_for_the_caller(op_meter: Any) -> None:
    def backward() -> None:
        torch.sin(X)
        call(op_meter, 2)
        torch.cos(X)

    op_meter.op_meter_open(False)
    call(op_meter, 1)
    on_thread(backward, b"pt_autograd_0")
    call(op_meter, 3)
    found = seen(op_meter)
    assert gaps(found) == {((0,), 1): 1, ((1,), 2): 1, ((2,), 3): 1, ((3,), 0): 1}
    assert whole_after(found, 1) == whole_after(found, 2) == (1, 1)
    assert sum(kind.n[1] for kind in found.kinds) == 0
    assert found.times.main_captured_ns == sum(row.ns for row in found.regions.values())
    assert found.loose[CERTAIN].cells == []


def test_the_engines_caller_has_ended(op_meter: Any) -> None:
    """Then it works for the main thread."""
    on_thread(lambda: call(op_meter, 1))
    op_meter.op_meter_open(True)
    on_thread(lambda: torch.sin(X), b"pt_autograd_0")
    assert whole_after(seen(op_meter), 0) == (1, 1)


def test_two_threads_that_end_a_gap_of_one_line(op_meter: Any) -> None:
    """No time is lost, and no window waits for a gap that is no more."""
    entered, left = threading.Event(), threading.Event()

    def backward() -> None:
        op_meter.op_meter_enter(2)
        entered.set()
        assert left.wait(600)
        op_meter.op_meter_leave(2)

    op_meter.op_meter_open(True)
    engine = later(lambda: on_thread(backward, b"pt_autograd_0"))
    assert entered.wait(600)
    call(op_meter, 1)
    left.set()
    engine.join()
    call(op_meter, 3)
    found = seen(op_meter)
    assert gaps(found) == {((0,), 2): 1, ((1,), 0): 1, ((2,), 3): 1, ((3,), 0): 1}
    waits = end_window(op_meter)
    call(op_meter, 4)
    waits.join()


# --- Reading, clearing, forking -----------------------------------------------------------------


def test_clearing_forgets_all(op_meter: Any) -> None:
    op_meter.op_meter_open(False)
    call(op_meter, 1)
    torch.sin(X)
    on_thread(lambda: torch.sin(X))
    op_meter.op_meter_clear()
    torch.cos(X)
    found = seen(op_meter)
    assert gaps(found) == {((0,), 0): 1} and found.regions == {}
    assert found.loose[CERTAIN].cells == []
    # The gap under way begins anew, and the window that is open sees it.
    assert whole_after(found, 0) == (1, 1)
    assert found.times.main_captured_ns == 0 and found.lost == 0


def test_clearing_within_a_region(op_meter: Any) -> None:
    call(op_meter, 1, op_meter.op_meter_clear)
    call(op_meter, 2)
    found = seen(op_meter)
    assert gaps(found) == {((1,), 2): 1, ((2,), 0): 1}
    assert found.regions[1].calls == 1


def test_a_gap_that_a_window_waits_for_is_forgotten(op_meter: Any) -> None:
    op_meter.op_meter_open(False)
    call(op_meter, 1)
    waits = end_window(op_meter)
    op_meter.op_meter_clear()
    op_meter.op_meter_wake()
    waits.join()
    op_meter.op_meter_open(False)
    call(op_meter, 1)
    end_window(op_meter)
    call(op_meter, 2)
    assert whole_after(seen(op_meter), 1) == (1, 0)


@pytest.mark.parametrize("when", full_but(["before", "in a region", "in a window"], "in a window"))
def test_a_fork(run_program: RunProgram, when: str) -> None:
    """The child begins with nothing, and can have windows of its own."""
    run_program(
        f"""
        import os, sys, threading, torch
        sys.path.insert(0, {str(SUPPORT)!r})
        from metering import call, gaps, names, seen, whole_after
        from instrumented_backend.observe.native import build
        lib = build.load()
        lib.op_meter_begin(0, 0)
        x = torch.ones(2)
        stop = threading.Event()
        begun = threading.Semaphore(0)

        def work():
            # PyTorch's own lock for its callbacks is taken by a thread's first op, and by ops after
            # each change of them; a child would inherit it.
            torch.sin(x)
            begun.release()
            while not stop.is_set():
                call(lib, 9)
                if {when != "in a window"}: torch.sin(x)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads: thread.start()
        for thread in threads: begun.acquire()
        for _ in range(20):
            call(lib, 1)
            if {when == "in a window"}: lib.op_meter_open(False)
            if {when == "in a region"}: lib.op_meter_enter(2)
            child = os.fork()
            if child == 0:
                lib.op_meter_after_fork()
                lib.op_meter_begin(0, 0)
                lib.op_meter_clear()
                if {when == "in a region"}: lib.op_meter_leave(2)
                lib.op_meter_open(False)
                call(lib, 4)
                torch.sin(x)
                call(lib, 5)
                found = seen(lib)
                good = (
                    gaps(found) == {{((0,), 4): 1, ((4,), 5): 1, ((5,), 0): 1}}
                    and whole_after(found, 4) == (1, 1)
                    and not names(*found.loose)
                )
                lib.op_meter_close()
                os._exit(0 if good else 1)
            if {when == "in a region"}: lib.op_meter_leave(2)
            lib.op_meter_close()
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        for thread in threads: thread.join()
        assert gaps(seen(lib))[(1,), 1 if {when != "in a region"} else 2] > 0
        """
    )


def test_reading_while_other_threads_run(op_meter: Any) -> None:
    stop = threading.Event()
    calls = []

    def work(key: int) -> None:
        n = 0
        while not stop.is_set():
            call(op_meter, key)
            torch.sin(X)
            n += 1
        calls.append((key, n))

    op_meter.op_meter_open(False)
    threads = [later(lambda key=key: work(key)) for key in (1, 2)]
    for _ in range(100):
        seen(op_meter)
    stop.set()
    for thread in threads:
        finish(thread)
    found = seen(op_meter)
    assert {key: found.regions[key].calls for key in (1, 2)} == dict(calls)
    assert found.loose[CERTAIN].cells == []
    assert sum(whole_after(found, key)[1] for key in (1, 2)) == sum(n for _, n in calls)
    assert sum(names(*kind.wholes)["aten::sin"] for kind in found.kinds) == sum(n for _, n in calls)


def test_windows_from_several_threads_at_once(op_meter: Any) -> None:
    """With samples, clearing and reading: afterwards all is as it was."""
    stop = threading.Event()
    sampler = structs.Sampler(lambda name: len(name))
    op_meter.op_meter_sample(sampler, True)

    def ops(key: int) -> None:
        while not stop.is_set():
            call(op_meter, key, lambda: torch.sin(X))
            for _ in range(key):
                torch.sin(X)
                torch.cos(X)

    def windows(number: int) -> None:
        for turn in range(150):
            choice = (number + turn) % 5
            awake = op_meter.op_meter_awake()
            if choice == 0:
                op_meter.op_meter_open(turn % 2)
            elif choice == 1:
                op_meter.op_meter_close()
            elif choice == 2:
                op_meter.op_meter_window(1000, *[1_000_000] * 4, HOUR_NS, awake)
            elif choice == 3:
                op_meter.op_meter_finish(op_meter.op_meter_end(), 1_000_000, awake)
            elif turn % 3 == 0:
                op_meter.op_meter_clear()
            else:
                seen(op_meter)
                op_meter.op_meter_wake()

    working = [later(lambda key=key: ops(key)) for key in (1, 20)]
    working.append(later(lambda: on_thread(lambda: ops(3), b"pt_autograd_0")))
    opening = [later(lambda number=number: windows(number)) for number in range(3)]
    ops_without_marks = later(lambda: [torch.sin(X) for _ in range(1000)])
    for thread in opening:
        thread.join()
    stop.set()
    for thread in (*working, ops_without_marks):
        finish(thread)
    op_meter.op_meter_close()
    op_meter.op_meter_sample(structs.Sampler(), False)
    op_meter.op_meter_clear()
    op_meter.op_meter_open(False)
    call(op_meter, 1)
    torch.sin(X)
    waits = end_window(op_meter)
    call(op_meter, 2)
    waits.join()  # for nothing else
    found = seen(op_meter)
    assert gaps(found) == {((0,), 1): 1, ((1,), 2): 1, ((2,), 0): 1}
    assert whole_after(found, 1) == (1, 1) and found.lost == 0
