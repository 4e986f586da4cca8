"""On a machine that has more to do than it has processors, where any two clock reads are far apart.

A library that is preloaded holds up who reads the clock, one time in two hundred.
"""

from pathlib import Path

import pytest
from paths import SUPPORT
from programs import RunProgram

from instrumented_backend.observe.native import build as native
from instrumented_backend.observe.native.compiler import compile_shared

OPS = 50_000  # at least, in windows


@pytest.fixture(scope="module")
def held_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("held-up") / "held_up.so"
    compile_shared(SUPPORT / "held_up.cpp", library, [], [], native.LIMIT_S)
    return library


def run(run_program: RunProgram, held_up: Path, body: str) -> None:
    """Fails as well where the native part reads another clock: it does so for each op."""
    begin = f"""
import ctypes, sys, torch
sys.path.insert(0, {str(SUPPORT)!r})
from metering import HOUR_NS, call, later, window_by_chance
from instrumented_backend.observe.native import build
from instrumented_backend.observe.ops import work
lib = build.load()
lib.op_meter_begin(0, 0)
x = torch.ones(2)
"""
    end = f"assert ctypes.CDLL(None).clock_reads() > {OPS}"
    run_program(begin + body + end, env={"LD_PRELOAD": str(held_up)})


def test_no_window_waits_for_a_gap_that_is_over(run_program: RunProgram, held_up: Path) -> None:
    """Who ends one may have read the clock before the window ended, and book the gap after that.

    Each of these windows ends when it has cost a millisecond, and would wait for an hour.
    """
    body = """
for _ in range(100):
    lib.op_meter_clear()
    awake = lib.op_meter_awake()
    window = later(lambda: window_by_chance(lib, HOUR_NS, HOUR_NS, awake))
    for _ in range(100_000):
        call(lib, 1)
        torch.sin(x)
        if not window.is_alive():
            break
    waits = window.is_alive()
    lib.op_meter_wake()
    window.join()
    assert not waits
"""
    run(run_program, held_up, body)


def test_what_seeing_ops_costs_is_never_less_than_nothing(
    run_program: RunProgram, held_up: Path
) -> None:
    """What is taken off for reading the clock is no more than there was."""
    body = f"""
before_s = work.spent_s(work.done(lib))
for _ in range(100):
    lib.op_meter_open(False)
    for _ in range({OPS // 100}):
        torch.sin(x)
    lib.op_meter_close()
    now_s = work.spent_s(work.done(lib))
    assert now_s > before_s, (before_s, now_s)
    before_s = now_s
"""
    run(run_program, held_up, body)
