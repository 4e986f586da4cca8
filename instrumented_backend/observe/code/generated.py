"""The generated code of each graph: which kernels it defines, and their records.

While the program compiles, a module's kernels are only found by name. It is parsed when somebody
asks for the records. Where the settings already do, a thread of low urgency parses it meanwhile,
or, if this Python's parser is not safe on two threads, the thread that compiles, for a small share
of the time that compiling takes.
"""

import logging
import marshal
import threading
import time
import weakref
import zlib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from instrumented_backend.kernels.complete import add_sidecar
from instrumented_backend.kernels.graph_module import ParseError, kernel_names
from instrumented_backend.kernels.parse import parse_module
from instrumented_backend.observe.code.kernel_lines import add_own_lines
from instrumented_backend.observe.code.node_lines import NodeLines
from instrumented_backend.observe.device.kernel_times import ModuleTimes
from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.garbage import no_garbage_collection
from instrumented_backend.observe.observer import Observer
from instrumented_backend.observe.pacer import Pacer
from instrumented_backend.observe.parsing import THREADS_MAY_PARSE, may_parse
from instrumented_backend.records import CodeRecord, KernelRecord, notes
from instrumented_backend.records.fields import field_values

log = logging.getLogger("instrumented_backend.kernels")

MAX_WAITING_CHARACTERS = 50_000_000  # of source that is kept for the thread
MAX_WAITING = 10_000  # modules that are kept for the thread that compiles
SHARE_OF_COMPILING = 0.03  # that parsing on the thread that compiles may add to it
A_CHARACTER_S = 0.2e-6  # of parsing; a guess that leaves no module for a moment that is too short


class _OutOfTime(Exception):
    """The program ends, and has waited long enough."""


class GeneratedCode:
    """One generated module. Its kernels are kept as packed records once it has been parsed."""

    def __init__(
        self, compiled_graph: Any, path: str, direction: str, nodes: NodeLines | None = None
    ) -> None:
        """``compiled_graph`` has the text in ``source_code``; Inductor keeps it in ``path``.

        ``nodes``: the lines of the graph that Dynamo captured.
        """
        self.path = path
        self.direction = direction
        self.names = kernel_names(compiled_graph.source_code)
        self._graph = weakref.ref(compiled_graph)
        self._nodes = nodes
        self._lock = threading.Lock()
        self._packed: bytes | None = None
        self.times: ModuleTimes | None = None

    @property
    def record(self) -> CodeRecord:
        names = [kernel.name for kernel in self.names]
        return CodeRecord(direction=self.direction, path=self.path, kernels=names)

    def _source(self) -> str:
        """From the graph, while the program keeps it; else from Inductor's cache."""
        graph = self._graph()
        if graph is not None and graph.source_code:
            return str(graph.source_code)
        return Path(self.path).read_text(encoding="utf-8")

    def parse(self, pause: Callable[[], None] = lambda: None, patience_s: float = -1) -> None:
        """Parse it, unless that has been done. Raises OSError, ParseError, and what ``pause`` does.

        A thread that parses it now is waited for, ``patience_s`` at most where that is not -1.
        """
        if not self._lock.acquire(timeout=patience_s):
            raise _OutOfTime
        try:
            if self._packed is None:
                pause()
                self._packed = _pack(self._read(pause))
        finally:
            self._lock.release()

    def _read(self, pause: Callable[[], None]) -> list[KernelRecord]:
        try:
            kernels = parse_module(self._source(), self.path, pause=pause)
        except ParseError:
            if self.names:
                raise
            kernels = []  # code of a kind in which there are none to find
        for kernel in kernels:
            kernel.direction = self.direction
        kept = add_sidecar(kernels, self.path)
        if self._nodes is not None:
            add_own_lines(kernels, kept.lines, self._nodes)
        return kernels

    @property
    def parsed(self) -> bool:
        return self._packed is not None

    def kernels(self) -> list[KernelRecord]:
        """The records, or the names alone where there has been no parsing."""
        records = self._records()
        if self.times is not None:
            for record in records:
                self.times.describe(record)
        return records

    def _records(self) -> list[KernelRecord]:
        packed = self._packed
        if packed is not None:
            return _unpack(packed)
        return [
            KernelRecord(
                kernel.name,
                kernel.language,
                direction=self.direction,
                path=self.path,
                notes=["by name only: its module was not parsed"],
                note_codes=[notes.NOT_PARSED],
            )
            for kernel in self.names
        ]


def _pack(kernels: list[KernelRecord]) -> bytes:
    """A record takes 1.4 KB as an object, 0.3 KB like this."""
    # marshal, since nobody reads it but this process: five times as fast as json and back.
    fields = [tuple(field_values(kernel).values()) for kernel in kernels]
    return zlib.compress(marshal.dumps(fields), level=1)


def _unpack(packed: bytes) -> list[KernelRecord]:
    return [KernelRecord(*fields) for fields in marshal.loads(zlib.decompress(packed))]


class KernelReader(Observer):
    """Parses generated code: at once where the log shows it, meanwhile, or when asked."""

    def __init__(
        self,
        failures: Failures,
        meanwhile: bool,
        compiling_s: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        threads_may_parse: bool = THREADS_MAY_PARSE,
    ) -> None:
        """``meanwhile``: the records will be wanted, so begin while the program runs.

        ``compiling_s``: seconds that compilations took so far.
        """
        self._failures = failures
        self._meanwhile = meanwhile
        self._compiling_s = compiling_s
        self._clock = clock  # in seconds
        self._threads_may_parse = threads_may_parse
        self.after_fork()

    def after_fork(self) -> None:
        """In the child: no thread, and nothing to parse."""
        self._lock = threading.Lock()
        self._waiting: deque[tuple[GeneratedCode, Any]] = deque()
        self._waiting_characters = 0
        self._pacer: Pacer | None = None  # of the thread, while there is one
        self._in_turn: deque[tuple[GeneratedCode, int]] = deque(maxlen=MAX_WAITING)
        self._parsing_s = 0.0  # on the thread that compiles
        self._logged: set[tuple[str, str]] = set()

    def reset(self) -> None:
        """What compilations took starts at zero, too."""
        self._parsing_s = 0.0

    def read(self, code: GeneratedCode, compiled_graph: Any) -> None:
        """Take note of a graph's code, on the thread that compiled or loaded it."""
        if log.isEnabledFor(logging.INFO):
            self._parse(code)
            self._log(code)
        elif self._meanwhile and self._threads_may_parse:
            self._enqueue(code, compiled_graph)
        elif self._meanwhile and may_parse():
            self._parse_in_turn(code, len(compiled_graph.source_code))

    def finish(self, codes: list[GeneratedCode], limit_s: float | None = None) -> int:
        """Parse what has not been; returns how many modules ``limit_s`` left no time for."""
        end_s = None if limit_s is None else self._clock() + limit_s
        left = 0
        with self._lock:
            self._waiting.clear()
            self._waiting_characters = 0
            self._in_turn.clear()
            if self._pacer is not None:
                self._pacer.hurry = True
        for code in codes:
            if code.parsed:
                continue
            if end_s is None:
                self._parse(code)
            else:
                left += not self._parse_until(code, end_s)
        return left

    def _parse_until(self, code: GeneratedCode, end_s: float) -> bool:
        """Whether there was time for it."""

        def check() -> None:
            if self._clock() >= end_s:
                raise _OutOfTime

        return self._parse(code, check, max(0.0, end_s - self._clock()))

    def _parse(
        self,
        code: GeneratedCode,
        pause: Callable[[], None] = lambda: None,
        patience_s: float = -1,
    ) -> bool:
        """Whether it is done with: parsed, or lost."""
        with self._failures.guard("the kernels of a graph"):
            try:
                code.parse(pause, patience_s)
            except _OutOfTime:
                return False
        return True

    def _log(self, code: GeneratedCode) -> None:
        """Each kernel once, its record in the LogRecord's ``kernel``."""
        for kernel in code.kernels():
            key = (code.path, kernel.kernel_name)
            if kernel.language != "extern" and key not in self._logged:
                self._logged.add(key)
                log.info("%s", _sentence(kernel), extra={"kernel": kernel})

    def _parse_in_turn(self, code: GeneratedCode, characters: int) -> None:
        """What waits, the oldest first, in the time that compiling allows; the rest later."""
        allowed_s = SHARE_OF_COMPILING * self._compiling_s()
        with self._lock:
            self._in_turn.append((code, characters))
        while True:
            with self._lock:
                if not self._in_turn:
                    return
                oldest, size = self._in_turn[0]
                if self._parsing_s + size * A_CHARACTER_S > allowed_s:
                    return
                self._in_turn.popleft()
            start = self._clock()
            with no_garbage_collection():  # syntax trees hold no cycles
                self._parse(oldest)
            self._parsing_s += self._clock() - start

    # --- The thread -----------------------------------------------------------------------------

    def _enqueue(self, code: GeneratedCode, compiled_graph: Any) -> None:
        size = len(compiled_graph.source_code)
        with self._lock:
            if self._waiting_characters + size > MAX_WAITING_CHARACTERS:
                return  # it is parsed when asked for
            # The graph goes along, so that its source is there when the thread gets to it.
            self._waiting.append((code, compiled_graph))
            self._waiting_characters += size
            if self._pacer is None:
                self._pacer = Pacer()
                threading.Thread(
                    target=self._work,
                    args=(self._pacer,),
                    name="instrumented-kernels",
                    daemon=True,
                ).start()

    def _work(self, pacer: Pacer) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._pacer = None
                    return
                code, compiled_graph = self._waiting.popleft()
                self._waiting_characters -= len(compiled_graph.source_code)
            self._parse(code, pacer.pause)
            del code, compiled_graph


def _sentence(kernel: KernelRecord) -> str:
    """``triton_poi_fused_add_0: pointwise, 2 loads, 1 store, 0.0168 GB (estimated)``."""
    parts = [kernel.kernel_category]
    if kernel.num_load is not None:
        parts.append(f"{kernel.num_load} loads, {kernel.num_store} stores")
    if kernel.total_bytes is not None:
        parts.append(f"{kernel.total_bytes / 1e9:.3g} GB ({kernel.bytes_source})")
    if kernel.aten_ops:
        parts.append(f"from {', '.join(kernel.aten_ops)}")
    return f"{kernel.kernel_name}: {', '.join(parts)}"
