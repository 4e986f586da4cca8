"""Runs the benchmarks: a child process for each module, restarted after a crash."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import msgspec

from instrumented_backend.bench import events
from instrumented_backend.bench.targets import Target
from instrumented_backend.kernels.complete import add_text
from instrumented_backend.records import KernelRecord, notes
from instrumented_backend.records.bench import (
    IN_GRAPH,
    BenchRecord,
    BenchRun,
    GraphBench,
    Timing,
    explain,
)
from instrumented_backend.units import signal_name

LOAD_FACTOR = 10  # loading a module, which may compile it, against the limit for a kernel
MAX_CRASHES = 10  # of one module
_SAID_BYTES = 1 << 16  # of what a process said last
# -P: a queue.py in the working folder is not Python's.
_COMMAND = (sys.executable, "-P", "-m", "instrumented_backend.bench.child")


@dataclass(frozen=True)
class Options:
    """``time_limit_s`` is for one kernel; ``memory_limit_bytes`` for a module on CPU."""

    all_configs: bool = False
    profile: bool = False
    time_limit_s: float = 60.0
    memory_limit_bytes: int | None = None


class NoDeviceError(RuntimeError):
    """The modules need a device that is not here; the message is one line."""


def bench(
    targets: list[Target], options: Options, advance: Callable[[int], None] = lambda count: None
) -> BenchRun:
    """Benchmark the modules in turn; ``advance`` is told how many kernels are done since.

    Ctrl-C ends it early, with ``interrupted`` set. Raises `NoDeviceError` where there is no device
    for any of them.
    """
    run = BenchRun()
    try:
        missing = _measure_peaks(run, targets)
        if targets and not run.peaks:
            raise NoDeviceError(f"{targets[0].path}: {next(iter(missing.values()))}")
        for target in targets:
            if target.device in missing:
                run.left_out[str(target.path)] = missing[target.device]
            else:
                _bench_module(run, target, options, advance)
    except KeyboardInterrupt:
        run.interrupted = True
    for record in run.kernels:
        record.add_notes(*explain(record))
    return run


def _measure_peaks(run: BenchRun, targets: list[Target]) -> dict[str, str]:
    """Returns why a kind of device cannot be had."""
    missing = {}
    for device in dict.fromkeys(target.device for target in targets):
        with Child(events.PeakRequest(device), None) as child:
            event = child.next(60 * LOAD_FACTOR)
        if isinstance(event, events.PeakMeasured):
            run.peaks[device] = event.peak
        elif isinstance(event, events.DeviceMissing | events.Gone):
            missing[device] = event.error
        else:
            raise TypeError(event)
    return missing


# --- One module ---------------------------------------------------------------------------------


@dataclass
class _Progress:
    """What the attempts at one module have given so far, by the launches' numbers."""

    rows: dict[int, list[BenchRecord]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)
    skip: list[int] = field(default_factory=list)
    resume: int = 0
    error: str | None = None  # why the rest of the module was not timed


def _bench_module(
    run: BenchRun, target: Target, options: Options, advance: Callable[[int], None]
) -> None:
    graph = GraphBench(str(target.path))
    progress = _Progress(error=target.error)
    try:
        if target.error is None:
            _attempts(target, options, graph, progress, advance)
    finally:
        # After Ctrl-C, too.
        _add_rows(run, target, progress)
        advance(max(len(target.kernels) - len(progress.rows), 0))
        if target.kind == "graph":
            graph.error = progress.error
            graph.kernels_ms = _sum(progress)
            run.graphs.append(graph)


def _attempts(
    target: Target,
    options: Options,
    graph: GraphBench,
    progress: _Progress,
    advance: Callable[[int], None],
) -> None:
    for _ in range(MAX_CRASHES):
        if _attempt(target, options, graph, progress, advance):
            return
    progress.error = f"its module crashed {MAX_CRASHES} times"


def _attempt(
    target: Target,
    options: Options,
    graph: GraphBench,
    progress: _Progress,
    advance: Callable[[int], None],
) -> bool:
    """Run the module once; False if another attempt, without what crashed, may give more."""
    request = events.ModuleRequest(
        kind=target.kind,
        path=os.fsencode(target.path),
        device=target.device,
        all_configs=options.all_configs,
        # Beside a kernel's own module, Inductor would write down which configuration it chose.
        without_autotune_cache=options.all_configs
        or (target.kind == "kernel" and cache_of(target.path) is None),
        profile=options.profile and not progress.skip,
        memory_limit_bytes=options.memory_limit_bytes if target.device == "cpu" else None,
        resume=progress.resume,
        skip=progress.skip,
    )
    current: events.Begin | None = None
    loaded = False
    with Child(request, target.path) as child:
        while True:
            slow = current is None or current.number is None or options.all_configs
            event = child.next(options.time_limit_s * (LOAD_FACTOR if slow else 1))
            match event:
                case events.Begin():
                    current = event
                case events.Rows():
                    progress.rows[event.number] = event.records
                    progress.names[event.number] = event.name
                    current = None
                    advance(1)
                case events.Calls():
                    progress.calls = event.calls
                case events.WholeCall():
                    graph.call = event.timing
                    current = None
                case events.InPlace():
                    _put_in_place(progress, event.timings)
                    current = None
                case events.Profile():
                    graph.profile = event.text
                    current = None
                case events.Ready():
                    loaded = True
                case events.Failed():
                    progress.error = event.error
                case events.End():
                    return True
                case events.Gone():
                    return _ended_early(target, event.error, current, loaded, progress)
                case _:
                    raise TypeError(event)


def _ended_early(
    target: Target, error: str, current: events.Begin | None, loaded: bool, progress: _Progress
) -> bool:
    """The child is gone. One launch is to blame if it was being timed, else the module."""
    if current is None and progress.error is not None:
        fatal = max(progress.rows, default=None)  # its own row has the error already
        number = fatal if loaded else None
    elif current is not None and current.number is not None:
        number = current.number
        record = BenchRecord(KernelRecord(current.name, "unknown"), error=error)
        progress.rows[number] = [record]
        progress.names[number] = current.name
    else:
        number = None
    if number is None or target.kind != "graph" or number in progress.skip:
        progress.error = progress.error or error
        return True
    progress.error = None
    progress.skip.append(number)
    progress.resume = number + 1
    return False


def _put_in_place(progress: _Progress, timings: dict[int, Timing]) -> None:
    """What was timed alone has its times in the graph's own calls, where they are known.

    An extern call may launch nothing; a kernel without time on the GPU is a C++ one.
    """
    for number, records in progress.rows.items():
        found = timings.get(number)
        for record in records:
            if record.timing is None or found is None:
                continue
            if found.ms or record.kernel.language == "extern":
                record.timing, record.timed = found, IN_GRAPH
                record.drop_notes({notes.TIMED_BY_EVENTS})


def _sum(progress: _Progress) -> float | None:
    """Of all launches in one call of the graph."""
    total = 0.0
    for number, records in progress.rows.items():
        chosen = next((record for record in records if record.chosen), None)
        if chosen is None or chosen.timing is None or number not in progress.calls:
            return None
        total += chosen.timing.ms * progress.calls[number]
    return total if progress.rows and not progress.error else None


# --- Rows ---------------------------------------------------------------------------------------


def _add_rows(run: BenchRun, target: Target, progress: _Progress) -> None:
    """The rows of what was launched, then one for each kernel that was not, with the reason."""
    known: dict[str, list[KernelRecord]] = {}
    for record in target.kernels:
        known.setdefault(record.kernel_name, []).append(record)
    launched = set()
    for number, records in sorted(progress.rows.items()):
        name = progress.names[number] or target.kernels[0].kernel_name
        parsed = _parsed(known.get(name, []), records[0].kernel, first=name not in launched)
        launched.add(name)
        for row in records:
            row.kernel = _completed(row.kernel, name, parsed, target)
            row.kernel.calls = progress.calls.get(number, row.kernel.calls)
            row.peak = run.peaks.get(target.device)
            run.kernels.append(row)
    for record in target.kernels:
        if record.kernel_name not in launched:
            reason = progress.error or _not_launched(record)
            run.kernels.append(BenchRecord(record, error=reason, chosen=True))


def _not_launched(record: KernelRecord) -> str:
    for note in record.coded_notes({notes.LAUNCHED_BY_CHOICE}):
        return note.text
    return "not reached before the end" if record.calls else "the graph never calls it"


def _parsed(
    candidates: list[KernelRecord], timed: KernelRecord, first: bool
) -> KernelRecord | None:
    """What the module's text says of this launch: of these shapes, or of the first one."""
    for candidate in candidates:
        if candidate.arg_shapes == timed.arg_shapes:
            return candidate
    return candidates[0] if candidates and (first or timed.language != "extern") else None


def _completed(
    timed: KernelRecord, name: str, parsed: KernelRecord | None, target: Target
) -> KernelRecord:
    """The record at the shapes that were timed, with what only the text and its side file tell."""
    timed.kernel_name = name
    timed.path = str(target.path) if target.kind == "graph" else None
    timed.kernel_path = str(target.path) if target.kind == "kernel" else None
    timed.graph, timed.direction = target.graph, target.direction
    if parsed is not None:
        add_text(timed, parsed)
    return timed


# --- The child process --------------------------------------------------------------------------


class Child:
    """A process that answers a request with events, and is gone at the end of the ``with``."""

    def __init__(self, request: events.Request, module: Path | None) -> None:
        self._request = request
        self._events: queue.Queue[events.Event | None] = queue.Queue()
        all_configs = isinstance(request, events.ModuleRequest) and request.all_configs
        self._environment = _environment(module, all_configs)

    def __enter__(self) -> "Child":
        self._stderr = tempfile.TemporaryFile()  # closed in __exit__
        # A session of its own: Ctrl-C is for the parent, and what it started ends with it.
        self._process = subprocess.Popen(
            _COMMAND,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()
        with contextlib.suppress(BrokenPipeError):  # it has ended already; `next` says how
            self._process.stdin.write(events.to_line(self._request))
            self._process.stdin.close()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # all of it has ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._stderr.close()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            try:
                event = events.read_event(line)
            except msgspec.DecodeError as error:
                event = events.Gone(f"its process said what cannot be read: {error}")
            self._events.put(event)
        self._events.put(None)

    def next(self, limit_s: float) -> events.Event:
        """The next event; `events.Gone` after a crash or a hang."""
        try:
            event = self._events.get(timeout=limit_s)
        except queue.Empty:
            return events.Gone(f"no result after {limit_s:g} s: stopped")
        return event if event is not None else events.Gone(self._how_it_ended())

    def _how_it_ended(self) -> str:
        code = self._process.wait()
        if code < 0:
            return f"the process died of {signal_name(-code)}"
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(size - _SAID_BYTES, 0))
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return f"the process ended with code {code}: {lines[-1].strip() if lines else 'no message'}"


def _environment(module: Path | None, all_configs: bool) -> dict[str, str]:
    """The child finds what Inductor has compiled for this module, and writes no tables."""
    environment = {**os.environ}
    environment.pop("TORCHINDUCTOR_ENABLED_METRIC_TABLES", None)
    if "PYTHONPATH" in environment:
        # An empty entry is the working folder: "$PYTHONPATH:/more" where there was none.
        entries = environment["PYTHONPATH"].split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, entries))
    if all_configs:
        # Workers would have dropped configurations before we see them.
        environment["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    cache = None if module is None else cache_of(module)
    if cache is not None and os.access(cache, os.W_OK):
        environment["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
    return environment


def cache_of(module: Path) -> Path | None:
    """``CACHE/ab/cabgraph.py`` → ``CACHE``: Inductor's own layout; else None."""
    folder = module.absolute().parent
    in_cache = len(folder.name) == 2 and module.stem[1:3] == folder.name
    return folder.parent if in_cache else None


def free_memory() -> int:
    """Bytes that could be had now without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
