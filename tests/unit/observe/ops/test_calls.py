"""What stands in a compiled function's place: it counts, passes on, and is watched on demand."""

import gc
import sys
import threading
import traceback
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from aot_function import aot_function
from waiting import wait_until

from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.graphs import calls as graph_calls
from instrumented_backend.observe.graphs.calls import CallCounter, GraphCalls
from instrumented_backend.observe.native import build as native
from instrumented_backend.observe.native import structs
from instrumented_backend.observe.native.gate import Gate
from instrumented_backend.observe.native.patience import Patience
from instrumented_backend.torch_compat import profilers

KEY = 6


class Call:
    """One graph's, native or in Python, and what `watched` saw of its calls."""

    def __init__(self, natively: bool, compiled: Callable[..., Any]) -> None:
        self.gate = Gate()
        self.calls = GraphCalls(self.gate, Failures())
        if natively:
            self.calls._native = native.load_graph_call()
        self.counter = CallCounter()
        self.graph: Any = types.SimpleNamespace(started=True)
        self.seen: list[tuple[Any, ...]] = []

        def watched(*args: Any) -> Any:
            self.seen.append(args)
            return compiled(*args)

        self.call = self.calls.counted(compiled, watched, self.counter, self.graph, KEY)


@pytest.fixture(params=["native", "python"])
def natively(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "native")


def test_it_counts_and_passes_on(natively: bool) -> None:
    one, two = Call(natively, str), Call(natively, divmod)
    assert [one.call(value) for value in (1, None, [2])] == ["1", "None", "[2]"]
    assert [two.call(7, 2), two.call(9, 3)] == [(3, 1), (3, 0)]
    assert (one.counter.value, two.counter.value) == (3, 2)
    assert one.seen == two.seen == []


def test_exceptions_are_the_graphs_own(natively: bool) -> None:
    made = Call(natively, int)
    with pytest.raises(ValueError, match="invalid literal for int"):
        made.call("x")
    assert made.counter.value == 1


def test_it_looks_like_the_function(natively: bool) -> None:
    """PyTorch marks its functions with attributes, such as ``_boxed_call``."""

    def compiled(value: Any) -> Any:
        """Of the graph."""
        return value

    compiled._boxed_call = True  # type: ignore[attr-defined]
    call: Any = Call(natively, compiled).call
    assert call._boxed_call is True and call.__wrapped__ is compiled
    assert (call.__name__, call.__doc__) == ("compiled", "Of the graph.")
    assert call.__qualname__ == compiled.__qualname__ and call.__module__ == __name__
    call.mark = 1
    assert call.__dict__["mark"] == 1 and not hasattr(compiled, "mark")


def test_the_first_call_is_watched(natively: bool) -> None:
    made = Call(natively, str)
    made.graph.started = False
    assert made.call(1) == "1"
    made.graph.started = True
    assert made.call(2) == "2"
    assert made.seen == [(1,)]
    assert made.counter.value == 1  # `watched` counts for itself


def test_a_meter_that_wants_to_see_the_calls(natively: bool) -> None:
    made = Call(natively, divmod)
    for wanted in (True, False):
        made.gate.want("device time", wanted)
        assert made.call(5, 3) == (1, 2)
    assert made.seen == [(5, 3)] and made.counter.value == 1


class _Slow:
    """A truth that, where it is first asked for, waits until it is let go."""

    def __init__(self) -> None:
        self.asked, self.let_go = threading.Event(), threading.Event()

    def __bool__(self) -> bool:
        if not self.asked.is_set():
            self.asked.set()
            assert self.let_go.wait(600)
        return True


def test_two_that_change_the_gate_at_once() -> None:
    """Calls would go unwatched, or be watched for good."""
    gate, slow = Gate(), _Slow()
    first = threading.Thread(target=gate.want, args=("ops", True, slow))
    first.start()
    wait_until(slow.asked.is_set)
    threading.Timer(0.2, slow.let_go.set).start()
    gate.want("a profiler", True)
    first.join()
    assert gate.native.state == structs.GateState.WATCHED


def test_a_fork_while_the_gate_changes() -> None:
    """The child has the lock as it was, and not the thread that would release it."""
    gate, slow = Gate(), _Slow()
    calls = GraphCalls(gate, Failures())
    other = threading.Thread(target=gate.want, args=("ops", True, slow))
    other.start()
    wait_until(slow.asked.is_set)
    calls.after_fork()
    changed = threading.Thread(target=gate.want, args=("ops", True), daemon=True)
    changed.start()
    wait_until(lambda: not changed.is_alive())
    assert other.is_alive()
    slow.let_go.set()
    other.join()


def test_a_profiler_that_runs(natively: bool) -> None:
    made = Call(natively, str)
    undo = profilers.watch_running(made.calls.profiled)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert made.call(1) == "1"
        undo_later = profilers.watch_running(made.calls.profiled)
        assert made.call(2) == "2"
    undo_later()
    undo()
    assert made.call(3) == "3"
    assert made.seen == [(1,), (2,)] and made.counter.value == 1


def test_the_op_meters_native_part_is_told_of_regions(op_meter: Any) -> None:
    def regions() -> tuple[int, int]:
        """Calls that it saw, and those of them inside another."""
        rows = (structs.RegionRow * 20)()
        op_meter.op_meter_regions(rows, len(rows))
        return rows[KEY].calls, rows[KEY].nested

    made = Call(True, int)
    made.gate.regions(op_meter.op_meter_enter, op_meter.op_meter_leave)
    assert made.call("1") == 1
    assert regions() == (0, 0)
    made.gate.want("ops", True, natively=True)
    assert made.call("2") == 2
    with pytest.raises(ValueError, match="invalid literal"):
        made.call("x")
    assert regions() == (2, 0) and made.counter.value == 3
    made.gate.want("device time", True)  # which has to see the calls itself
    assert made.call("3") == 3
    assert made.seen == [("3",)]
    made.gate.want("device time", False)
    made.gate.want("ops", False)
    assert made.call("4") == 4
    assert regions() == (2, 0) and made.counter.value == 4


def test_in_python_the_op_meter_is_watching_like_any_other() -> None:
    made = Call(False, str)
    made.gate.want("ops", True, natively=True)
    assert made.call(1) == "1" and made.seen == [(1,)]


def test_what_nobody_needs_any_more_is_freed(natively: bool) -> None:
    """Weights and code hang on it, in circles."""

    class Model:
        call: Any

        def compiled(self, _: Any) -> None: ...

    model = Model()
    model.call = Call(natively, model.compiled).call
    gone = [weakref.ref(model), weakref.ref(model.call)]
    del model
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_two_threads_count_exactly(natively: bool) -> None:
    made = Call(natively, str)

    def run() -> None:
        for value in range(20_000):
            made.call(value)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.counter.value == 40_000


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({3: "x"}, "cannot be interpreted as an integer|an integer is required"),
        ({4: bytearray(8)}, r"8 bytes, not 24: bytearray"),
        ({5: bytearray(4)}, r"4 bytes, not 8: bytearray"),
        ({5: None}, "bytes-like object"),
    ],
)
def test_arguments_that_are_none(change: dict[int, Any], error: str) -> None:
    arguments = [len, len, object(), KEY, Gate().native, CallCounter().native, None, None]
    for place, value in change.items():
        arguments[place] = value
    with pytest.raises(TypeError, match=error):
        native.load_graph_call().GraphCall(*arguments)


def test_aotautograds_function_is_passed_over() -> None:
    """What it does is done without its frame."""
    before: list[object] = [1]
    failed: list[ValueError] = []

    def compiled_fn(args: list[object]) -> object:
        if not args[1:]:
            raise ValueError(args)
        return tuple(args)

    made = Call(True, aot_function(compiled_fn=compiled_fn, params_buffers_flat=before))
    assert made.call(2, None) == (1, 2, None)
    before.append("as it is at the call")
    value = object()
    references = sys.getrefcount(value)
    assert made.call(value) == (1, "as it is at the call", value)
    assert sys.getrefcount(value) == references
    before[:] = [1]
    try:
        made.call()
    except ValueError as error:
        failed.append(error)
    frames = [frame.name for frame in traceback.extract_tb(failed[0].__traceback__)]
    assert failed[0].args == ([1],) and frames[1:] == ["compiled_fn"]
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        made.call(x=2)
    assert made.counter.value == 4 and made.seen == []


def test_a_graph_waits_for_what_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that never saw it, it is still being built when the first graph is there."""
    load, is_waited_for = native.load_graph_call, threading.Event()

    def slow(**keywords: Any) -> Any:
        assert is_waited_for.wait(60)
        return load(**keywords)

    class Waiting(Patience):
        def wait(self, done: threading.Event, patience_s: float) -> None:
            is_waited_for.set()
            super().wait(done, patience_s)

    monkeypatch.setattr(native, "load_graph_call", slow)
    monkeypatch.setattr(graph_calls, "Patience", Waiting)
    calls = GraphCalls(Gate(), Failures())
    calls.start()
    graph: Any = types.SimpleNamespace(started=True)
    call = calls.counted(len, len, CallCounter(), graph, KEY)
    is_waited_for.set()
    assert call([1, 2]) == 2 and not isinstance(call, types.FunctionType)


def test_where_it_cannot_be_built(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(**_: object) -> Any:
        raise native.NativeError("no C++ compiler found")

    monkeypatch.setattr(native, "load_graph_call", fails)
    failures = Failures()
    calls = GraphCalls(Gate(), failures)
    calls.start()
    assert calls._loader is not None
    calls._loader.join()
    calls.start()
    assert [note.text for note in failures.notes] == [
        "graph calls are counted in Python, which is slower: no C++ compiler found"
    ]
    assert isinstance(
        calls.counted(len, len, CallCounter(), types.SimpleNamespace(started=True), 1),  # type: ignore[arg-type]
        types.FunctionType,
    )
