"""Files that nobody should trust, made by hypothesis; what reads them is watched.

``python fuzzing.py KIND COUNT [SEED]``, in a process of its own: it may have a gigabyte, each case
five seconds, and while one is read nothing may be executed, which Python's audit events show.
"""

import gzip
import importlib
import json
import os
import re
import resource
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from paths import BENCHMARKS, DATA

SECONDS = 5
GIGABYTE = 1 << 30
CONTROLS = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]")
_STARTS = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.", "socket.", "ctypes.")


class Watch:
    """Names what was executed inside the ``with``. An audit hook can't be taken away again."""

    def __init__(self) -> None:
        self.armed = False  # what is imported late makes its dataclasses of text
        self.on = False
        self.executed: list[str] = []
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event.startswith(_STARTS):
            self.executed.append(event)
        elif event == "exec":  # an import runs a file that is installed
            file = getattr(arguments[0], "co_filename", "")
            if not (file.startswith("<frozen") or Path(file).is_file()):
                self.executed.append(f"{event} {file}")

    def __enter__(self) -> None:
        signal.alarm(SECONDS if self.armed else 10 * SECONDS)
        self.on = self.armed

    def __exit__(self, *_: object) -> None:
        self.on = False
        signal.alarm(0)
        assert not self.executed, self.executed


def _too_slow(*_: object) -> None:
    raise TimeoutError(f"a case took more than {SECONDS} s")


def one_line(error: Exception) -> None:
    assert str(error) and "\n" not in str(error), repr(error)


# --- Traces ---------------------------------------------------------------------------------------

TICKS = st.integers(0, 400)
SPANS = st.lists(
    st.tuples(TICKS, st.integers(0, 90), st.integers(0, 2), st.booleans()), max_size=40
)


def traces(folder: Path, watch: Watch) -> Callable[[], None]:
    """Against plain interval unions: sets of ticks of a quarter µs."""
    from traces import copy, kernel

    from instrumented_backend.traces.trace_file import read_trace
    from instrumented_backend.traces.utilization import time_of

    path = folder / "t.json"

    @given(SPANS, st.sampled_from([None, 0, 1]), st.booleans(), st.sampled_from([0, 3, 2**40]))
    def check(spans: list[Any], indent: int | None, packed: bool, origin: int) -> None:
        made = [
            (kernel if is_kernel else copy)(origin + at / 4, length / 4, device=device)
            for at, length, device, is_kernel in spans
        ]
        text = json.dumps({"schemaVersion": 1, "traceEvents": made}, indent=indent).encode()
        path.write_bytes(gzip.compress(text) if packed else text)
        if not spans:
            return
        with watch:
            found = time_of(read_trace(path), None)
        assert {device.device for device in found.devices} == {span[2] for span in spans}
        for device in found.devices:
            for is_kernel, us in ((None, device.busy_us), (False, device.copy_us)):
                ticks: set[int] = set()
                for at, length, of, kind in spans:
                    if of == device.device and (is_kernel is None or kind == is_kernel):
                        ticks.update(range(at, at + length))
                assert us == len(ticks) / 4

    return check


def damaged_traces(folder: Path, watch: Watch) -> Callable[[], None]:
    from traces import annotation, kernel, launch

    from instrumented_backend.traces.event_stream import TraceError
    from instrumented_backend.traces.trace_file import read_trace
    from instrumented_backend.traces.utilization import time_of
    from instrumented_backend.views.output import render_view
    from instrumented_backend.views.trace import TracesView

    document = {
        "schemaVersion": 1,
        "distributedInfo": {"rank": 0, "world_size": 2},
        "deviceProperties": [{"id": 0, "name": "G"}],
        "traceEvents": [
            *(annotation(0, 50, "ProfilerStep#1"), launch(1, 2, 5), kernel(5, 9, correlation=5)),
            *(annotation(1, 9, "TORCHDYNAMO"), kernel(15, 9)),
        ],
    }
    path = folder / "t.json"

    @given(st.data())
    def check(data: Any) -> None:
        text = bytearray(json.dumps(changed(data, document)).encode())
        if data.draw(st.booleans()):
            damage_bytes(data, text)
        path.write_bytes(text)
        with watch:
            try:
                view = TracesView([time_of(read_trace(path), None)], (), 10)
            except TraceError as error:
                return one_line(error)
            for layout in ("table", "json", "csv"):
                render_view(view, layout, 80)

    return check


# --- Reports --------------------------------------------------------------------------------------

NUMBERS = st.integers() | st.floats() | st.sampled_from([2**63, -(2**64), 10**400, 1e308, 5e-324])
TEXTS = st.text(max_size=20) | st.sampled_from(["\ud800", "\x1b[2J", "\0", "=1+1", "x" * 2000])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    if isinstance(value, list | dict):
        for key in range(len(value)) if isinstance(value, list) else list(value):
            found += [(value, key), *places(value[key])]
    return found


def of_its_type(value: Any) -> Any:
    """Values that the schema allows in the place of this one, or nearly."""
    kinds = {bool: st.booleans(), int: st.integers(), float: st.floats(), str: TEXTS}
    return kinds.get(type(value), VALUES)


def changed(data: Any, document: Any) -> Any:
    """A copy with a few values of the same type, of others, missing or repeated."""
    document = json.loads(json.dumps(document))
    for _ in range(data.draw(st.integers(1, 4))):
        found = places(document)
        holder, key = found[data.draw(st.integers(0, len(found) - 1))]
        match data.draw(st.integers(0, 5)):
            case 0 | 1 | 2:
                holder[key] = data.draw(of_its_type(holder[key]))
            case 3:
                holder[key] = data.draw(VALUES)
            case 4:
                del holder[key]
            case 5 if isinstance(holder, list):
                holder += [holder[key]] * 3
            case _:
                holder[data.draw(TEXTS) if isinstance(holder, dict) else key] = holder[key]
    return document


def damage_bytes(data: Any, text: bytearray) -> None:
    for _ in range(data.draw(st.integers(0, 5))):
        at = data.draw(st.integers(0, max(len(text) - 1, 0)))
        match data.draw(st.integers(0, 2)):
            case 0:
                text[at : at + 1] = data.draw(st.binary(max_size=4))
            case 1:
                del text[at : at + data.draw(st.integers(1, 60))]
            case _:
                text[at:at] = text[at : at + data.draw(st.integers(1, 200))]


def saved_reports() -> list[Any]:
    """Plain data of some, with short lists."""
    from sample_report import sample_on_gpu

    def short(value: Any) -> Any:
        if isinstance(value, list):
            return [short(item) for item in value[:2]]
        return {k: short(v) for k, v in value.items()} if isinstance(value, dict) else value

    texts = [file.read_text() for file in sorted((DATA / "reports").glob("*.json"))]
    texts.append(sample_on_gpu().to_json())  # it has the sections of today, too
    return [short(json.loads(text)) for text in texts]


def reports(folder: Path, watch: Watch) -> Callable[[], None]:
    from instrumented_backend.records import ReportError, read_report
    from instrumented_backend.settings import TABLES
    from instrumented_backend.views.files import write_files
    from instrumented_backend.views.text import render

    documents = saved_reports()
    path = folder / "report.json"

    @given(st.data())
    def check(data: Any) -> None:
        text = bytearray(
            json.dumps(
                changed(data, documents[data.draw(st.integers(0, len(documents) - 1))])
            ).encode()
        )
        if data.draw(st.integers(0, 9)) == 0:
            damage_bytes(data, text)
        path.write_bytes(text)
        with watch:
            try:
                report = read_report(path)
            except ReportError as error:
                return one_line(error)
            said = render(report, TABLES, data.draw(st.sampled_from([20, 80, 200])))
            write_files(report, folder / "files")
        assert not CONTROLS.search(said), repr(said)

    return check


def views(folder: Path, watch: Watch) -> Callable[[], None]:
    """Of a damaged report, each time what one of the commands makes of it."""
    from every_view import commands, run
    from every_view import watch as top

    documents = saved_reports()
    path, other = folder / "report.json", folder / "other.json"
    other.write_text(json.dumps(documents[0]))
    path.write_text(json.dumps(documents[-1]))
    known = list(commands(path, other, folder))
    for arguments in known:  # what is imported late, and templates, are compiled here
        run(arguments)
    top(path)

    @given(st.data())
    def check(data: Any) -> None:
        document = documents[data.draw(st.integers(0, len(documents) - 1))]
        path.write_text(json.dumps(changed(data, document)))
        number = data.draw(st.integers(0, len(known)))
        with watch:
            said = run(known[number]) if number < len(known) else top(path)
        if number == len(known):  # a terminal is told where its lines end
            said = said.replace("\r", "")
        assert not CONTROLS.search(said), repr(said)

    return check


# --- Generated modules and logs of operator inputs ------------------------------------------------

TOKENS = st.sampled_from(
    [
        *("(", ")", "[", "]", "'", '"""', "\n", "    ", "\\", "\x00", "\ud800", "é", "s0", "-1"),
        *("9" * 5000, "1e999", "None", "(" * 300, "-" * 2000, "0 if 0 else", "lambda: 0"),
        *("__import__('os').system('true')", "exec('1')", "float('inf')"),
        *("2**9**9**9", "1 << 10**9", "'a' * 10**10"),
    ]
)


def damage_text(data: Any, text: str) -> str:
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        until = at + data.draw(st.integers(0, 80))
        middle = data.draw(TOKENS | st.just("") | st.just(text[at:until] * 2))
        text = text[:at] + middle + text[until:]
    return text


def modules(folder: Path, watch: Watch) -> Callable[[], None]:
    from kernel_data import modules as recorded

    from instrumented_backend.bench.generated import kind_of
    from instrumented_backend.kernels.code_files import CodeFileError, read_file
    from instrumented_backend.kernels.graph_module import ParseError
    from instrumented_backend.views.kernels import KernelsView
    from instrumented_backend.views.output import render_view

    texts = [text for text in recorded().values() if len(text) < 30_000]
    path = folder / "module.py"

    @given(st.data())
    def check(data: Any) -> None:
        text = damage_text(data, texts[data.draw(st.integers(0, len(texts) - 1))])
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        with watch:
            try:
                kernels = read_file(path)
                kind_of(text)
            except (CodeFileError, ParseError) as error:
                return one_line(error)
            for layout in ("table", "json", "csv"):
                render_view(KernelsView(kernels), layout, 80)

    return check


def logs(folder: Path, watch: Watch) -> Callable[[], None]:
    sys.path.insert(0, str(BENCHMARKS))
    from opbench.input_log import InputLogError, log_text, read_log

    (file,) = (DATA / "operator_inputs").glob("*.txt")
    lines = file.read_text().splitlines(keepends=True)
    path = folder / "log.txt"

    @given(st.data())
    def check(data: Any) -> None:
        start = data.draw(st.integers(0, len(lines) - 1))
        text = damage_text(data, lines[0] + "".join(lines[start : start + 8]))
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        with watch:
            try:
                log_text(read_log(path))
            except InputLogError as error:
                one_line(error)

    return check


KINDS = {
    "traces": traces,
    "damaged_traces": damaged_traces,
    "reports": reports,
    "views": views,
    "modules": modules,
    "logs": logs,
}


def main(kind: str, count: str, chance: str = "0") -> None:
    signal.signal(signal.SIGALRM, _too_slow)
    for late in ("tabulate", "instrumented_backend.records.decoding"):
        importlib.import_module(late)
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + GIGABYTE
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for cases, watch.armed in ((10, False), (int(count), True)):
            options = settings(
                max_examples=cases,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            options(seed(int(chance))(KINDS[kind](Path(folder), watch)))()
    print(f"{kind}: {count} cases, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB")


if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    main(*sys.argv[1:])
