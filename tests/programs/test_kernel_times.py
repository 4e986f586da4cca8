"""Timers in the place of C++ kernels: what they count, and the records."""

from types import ModuleType
from typing import Any

import pytest
from programs import RunProgram

from instrumented_backend.observe.device.kernel_times import KernelTimer, ModuleTimes
from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.native import build as native
from instrumented_backend.records import KernelRecord

ALL_TIMED = 1000  # of a kernel's first calls


@pytest.fixture(scope="module")
def library() -> Any:
    return native.load_kernel_timer()


def module(path: str, **kernels: Any) -> ModuleType:
    made = ModuleType("generated")
    made.__file__ = path
    vars(made).update(kernels)
    return made


def test_a_timer_is_the_kernel_to_its_caller(library: Any) -> None:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    timer = library.Timer(kernel)
    assert timer(1, 2, a=3) == ((1, 2), {"a": 3}) and timer.function is kernel
    with pytest.raises(ValueError, match="invalid literal"):
        library.Timer(int)("x")
    with pytest.raises(TypeError):
        library.Timer()


class Given:
    """A library whose counter ticks twice a nanosecond, with timers that a test sets."""

    class Timer:
        def __init__(self, function: Any) -> None:
            self.function = function
            self.calls = self.timed = self.ticks = 0

    ns = 1_000

    def now(self) -> tuple[int, int]:
        return 2 * self.ns, self.ns


def test_time_of_a_call() -> None:
    library = Given()
    times = ModuleTimes(library)
    times.install(made := module("m.py", k=len), ["k", "missing"])
    made.k.calls, made.k.timed, made.k.ticks = 8, 5, 100_000_000
    library.ns += 10**9
    record = KernelRecord("k", "cpp", total_bytes=20_000_000)
    times.describe(record)
    # 100 million ticks are 50 ms: 10 of each timed call, 80 of all; 20 MB in 10 ms are 2 GB/s.
    assert (record.device_calls, record.device_time_us) == (8, 10_000)
    assert (record.device_time_total_us, record.gb_per_s) == (80_000, 2)
    assert record.notes[0] == "time: of 5 calls, drawn at random from 8"
    assert record.peak_pct is None and record.notes[1].startswith("share of peak unknown")


def test_a_quarter_of_many_calls_is_timed(library: Any) -> None:
    timer = library.Timer(len)
    for _ in range(ALL_TIMED + 40_000):
        timer("")
    assert timer.calls == ALL_TIMED + 40_000
    # Binomial: 10,000 of 40,000, a standard deviation of 87.
    assert abs(timer.timed - ALL_TIMED - 10_000) < 6 * 87
    times = ModuleTimes(library)
    times._timers["k"] = [timer]
    record = KernelRecord("k", "cpp")
    times.describe(record)
    assert f"time: of {timer.timed} calls, drawn at random from {timer.calls}" in record.notes


def test_only_the_modules_of_the_path_and_once() -> None:
    ours, other = module("a.py", k=len), module("b.py", k=len)
    timer = KernelTimer(Failures())
    first = timer.install([ours, other], "a.py", ["k"])
    assert first is not None and other.k is len and ours.k("ab") == 2
    again = timer.install([ours], "a.py", ["k"])
    records = [KernelRecord("k", "cpp"), KernelRecord("k", "cpp")]
    assert again is not None
    for times, record in zip((first, again), records, strict=True):
        times.describe(record)
    assert [record.device_calls for record in records] == [1, None]
    first.reset()
    first.describe(empty := KernelRecord("k", "cpp"))
    assert empty.device_calls is None
    assert timer.install([ours], "a.py", []) is None


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(**_: object) -> Any:
        raise native.NativeError("no compiler")

    monkeypatch.setattr(native, "load_kernel_timer", fails)
    timer = KernelTimer(Failures())
    with pytest.raises(native.NativeError):
        timer.install([], "a.py", ["k"])
    assert timer.install([], "a.py", ["k"]) is None  # said once


PROGRAM = """
import torch
compiled = torch.compile(lambda x: (x.sin() * 2).sum(), backend="instrumented")
x = torch.ones(100)
for _ in range(7):
    compiled(x)
"""


@pytest.mark.full
def test_in_a_run_and_off_by_default(run_forked: RunProgram) -> None:
    timed = run_forked(PROGRAM, env={"INSTRUMENTED_DEVICE_TIME": "on"}).report
    (kernel,) = timed["kernels"]
    assert kernel["device_calls"] == 7 and kernel["device_time_us"] > 0
    rate = kernel["total_bytes"] / kernel["device_time_us"] / 1e3
    assert kernel["gb_per_s"] == pytest.approx(rate)
    plain = run_forked(PROGRAM).report
    assert plain["kernels"][0]["device_calls"] is None
    # The same code, from the cache: nothing was compiled for the timers.
    assert [code["path"] for graph in plain["graphs"] for code in graph["code"]] == [
        code["path"] for graph in timed["graphs"] for code in graph["code"]
    ]
    assert plain["graphs"][0]["cache"] == "hit"
