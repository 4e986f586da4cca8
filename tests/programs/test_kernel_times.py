"""Timers in the place of C++ kernels: what they count, what they cost, and the records."""

import time
import timeit
from types import ModuleType
from typing import Any

import pytest
from programs import RunProgram

from instrumented_backend.observe import native
from instrumented_backend.observe.kernel_times import KernelTimer, ModuleTimes
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


def test_time_of_a_call(library: Any) -> None:
    times = ModuleTimes(library)
    times.install(made := module("m.py", k=lambda: time.sleep(0.01)), ["k", "missing"])
    start = time.perf_counter()
    for _ in range(5):
        made.k()
    whole_us = 1e6 * (time.perf_counter() - start)
    record = KernelRecord("k", "cpp", total_bytes=20_000_000)
    times.describe(record)
    assert record.device_calls == 5 and record.device_time_total_us is not None
    assert 5 * 10_000 <= record.device_time_total_us <= whole_us
    assert record.device_time_us == pytest.approx(record.device_time_total_us / 5)
    # 20 MB in some 10 ms are some 2 GB/s.
    assert record.gb_per_s == pytest.approx(20_000 / record.device_time_us)
    assert record.peak_pct is None and record.notes[0].startswith("share of peak unknown")


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


def test_cost_of_a_call(library: Any) -> None:
    timer = library.Timer(len)
    for _ in range(ALL_TIMED):
        timer("")

    def ns(function: Any) -> float:
        return (
            1e9
            * min(timeit.repeat("f('')", globals={"f": function}, number=20_000, repeat=30))
            / 20_000
        )

    assert ns(timer) - ns(len) < 100


def test_only_the_modules_of_the_path_and_once() -> None:
    ours, other = module("a.py", k=len), module("b.py", k=len)
    timer = KernelTimer()
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
    def fails(*_: object) -> Any:
        raise native.NativeError("no compiler")

    monkeypatch.setattr(native, "load_kernel_timer", fails)
    timer = KernelTimer()
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


def test_in_a_run_and_off_by_default(run_forked: RunProgram) -> None:
    timed = run_forked(PROGRAM, env={"INSTRUMENTED_DEVICE_TIME": "on"}).report
    (kernel,) = timed["kernels"]
    assert kernel["device_calls"] == 7 and 0 < kernel["device_time_us"] < 1e6
    assert kernel["gb_per_s"] > 0
    plain = run_forked(PROGRAM).report
    assert plain["kernels"][0]["device_calls"] is None
    # The same code, from the cache: nothing was compiled for the timers.
    assert [code["path"] for graph in plain["graphs"] for code in graph["code"]] == [
        code["path"] for graph in timed["graphs"] for code in graph["code"]
    ]
    assert plain["graphs"][0]["cache"] == "hit"
