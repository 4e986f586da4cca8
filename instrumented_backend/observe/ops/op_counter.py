"""Counts the forward ops of captured graphs, when a report is made: each distinct call is run once.

A call is run on made-up inputs of the kind that it was captured with, in 0.1 to 0.3 ms.
"""

import contextlib
import functools
import inspect
import operator
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from instrumented_backend.observe.ops import captured
from instrumented_backend.observe.ops.captured import (
    Call,
    GraphOps,
    TensorLike,
    map_leaves,
    target_name,
)
from instrumented_backend.torch_compat import fx

if TYPE_CHECKING:
    import torch

MAX_CALLS = 20_000
LONGEST_S = 5.0  # of the thread's own time, which a report waits for
OTHERS_LISTEN = (
    "ops in graphs are not counted while something else listens to PyTorch's ops, such as an "
    "ExecutionTraceObserver: it would see them"
)


class OneThread:
    """Counts what the calling thread dispatches, in the op meter's native part."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib

    def is_alone(self) -> bool:
        """Does nobody else listen, who would see what is run to be counted?"""
        return bool(self._lib.op_count_is_alone())

    def count(self, run: Callable[[], Any]) -> int:
        """How many outermost ops ``run()`` dispatches."""
        handle = self._lib.op_count_begin()
        try:
            run()
            return int(self._lib.op_count_take())
        finally:
            self._lib.op_count_end(handle)


class OpCounter:
    """Counts graphs' forward ops, running each distinct call once.

    ``problem`` says why some are not counted yet, although that was tried.
    """

    def __init__(self) -> None:
        self.problem: str | None = None
        self._lock = threading.Lock()
        self._counting = threading.Lock()  # held by the one thread that runs calls
        self._waiting: dict[bytes, Call] = {}
        self._known: dict[bytes, int | str] = {}  # ops, or the name of what could not be run
        self._graphs: list[GraphOps] = []  # whose forward is not known yet

    def add(self, gm: "torch.fx.GraphModule") -> GraphOps:
        """Take note of a graph that is about to be compiled."""
        ops, calls = captured.describe(gm)
        with self._lock:
            self._graphs.append(ops)
            for digest, call in calls.items():
                if digest not in self._known and len(self._known) < MAX_CALLS:
                    self._waiting[digest] = call
        return ops

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        self._graphs.clear()
        self.problem = None

    def count_all(self, thread: OneThread, pause: Callable[[], None] = lambda: None) -> None:
        """Find ``forward`` of every graph; 0.1 to 1 ms for each call not met before.

        A call that cannot be run, or for which no time is left, counts as one op, and is noted in
        the graph's ``estimated``. ``pause`` is called between two of them. Graphs that come
        meanwhile are for the next time, as are those with calls that others would see.
        """
        until = time.thread_time() + LONGEST_S
        with self._counting:
            with self._lock:
                waiting, graphs = dict(self._waiting), list(self._graphs)
            found = {}
            problem = None
            with _no_warnings():
                for digest, call in waiting.items():
                    pause()
                    if not thread.is_alone():
                        problem = OTHERS_LISTEN
                        break
                    if time.thread_time() > until:
                        break
                    found[digest] = _count_call(call, thread.count)
            with self._lock:
                self._known.update(found)
                for digest in waiting if problem is None else found:
                    self._waiting.pop(digest, None)
                new, self._graphs = self._graphs[len(graphs) :], []
                for ops in graphs:
                    if any(digest in self._waiting for digest, _ in ops.calls):
                        self._graphs.append(ops)
                    else:
                        self._finish(ops)
                self._graphs += new
                self.problem = problem

    def _finish(self, ops: GraphOps) -> None:
        forward = Counter(ops.certain)
        for (digest, line), times in ops.calls.items():
            found = self._known.get(digest, "one of too many functions")
            forward[line] += times * (found if isinstance(found, int) else 1)
            if isinstance(found, str):
                ops.estimated[f"a call of {found}"] += times
        ops.calls.clear()
        ops.forward_lines = forward


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    """The program has had the warnings of its functions already.

    Python keeps what to ignore for all threads at once: beside the main thread it is left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _count_call(call: Call, count: Callable[[Callable[[], Any]], int]) -> int | str:
    function = fx.tensor_method(call.target) if call.op == "call_method" else call.target
    if function is None:
        return target_name(call.target)
    attempts: list[tuple[Call, str | None]] = [(call, None), (_in_one_dtype(call), None)]
    if _is_safe_on_meta(function, call):
        attempts.insert(0, (call, "meta"))
    for attempt, device in attempts:
        try:
            with contextlib.nullcontext() if device else fx.fake_mode():
                args, kwargs = _make(attempt, device)
                return count(functools.partial(function, *args, **kwargs))
        except Exception:  # any: what the program's own function does on made-up inputs
            continue
    return target_name(call.target)


def _in_one_dtype(call: Call) -> Call:
    """As under autocast, where an op's floating-point arguments become one dtype inside it."""
    import torch

    def convert(value: Any) -> Any:
        if isinstance(value, TensorLike) and value.dtype.is_floating_point:
            return replace(value, dtype=torch.float32)
        return value

    return replace(
        call, args=map_leaves(convert, call.args), kwargs=map_leaves(convert, call.kwargs)
    )


def _is_safe_on_meta(function: Callable[..., Any], call: Call) -> bool:
    """Tensors on the meta device are ten times as fast as fake ones, but nothing would keep a
    function that makes tensors of its own from taking memory or random numbers for them."""
    values: list[Any] = []
    map_leaves(values.append, (call.args, call.kwargs))
    return (
        not inspect.isfunction(function)
        and function not in (operator.getitem, operator.setitem)  # differ on meta
        and any(isinstance(value, TensorLike) for value in values)
        and not any(isinstance(value, str) or fx.is_device(value) for value in values)
    )


def _make(call: Call, device: str | None) -> tuple[Any, Any]:
    """Arguments to call with, made up from what they were like."""
    made: dict[TensorLike, Any] = {}

    def make(value: Any) -> Any:
        if not isinstance(value, TensorLike):
            return value
        if value not in made:
            made[value] = value.make(device)
        return made[value]

    args, kwargs = map_leaves(make, (call.args, call.kwargs))
    return args, kwargs
