"""What no profiler writes ends in one line, or is left out and told; memory has a limit."""

import csv
import io
import json
import os
import resource
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling import call, is_one_line
from traces import annotation, kernel, write

from instrumented_backend.traces.event_stream import MAX_EVENT_BYTES, EventStream, TraceError
from instrumented_backend.traces.time_range import TimeRange
from instrumented_backend.traces.trace_file import read_trace

EVENT = json.dumps(kernel(1, 1)).encode() + b","
MEGABYTE = 1 << 20
# A kind of bomb: how the file begins, and what follows a thousand times.
BOMBS = {
    "events": (b'{"traceEvents": [', EVENT * (MEGABYTE // len(EVENT)), "expands to more than"),
    "spaces": (b'{"traceEvents": [', b" " * MEGABYTE, "an event of more than 16 MB"),
    "a name": (b'{"traceEvents": [{"name": "', b"a" * MEGABYTE, "an event of more than 16 MB"),
    "a header": (b'{"a": "', b"a" * MEGABYTE, "expands to more than"),
}
HALF_A_GIGABYTE = 1 << 29


def bombed(head: bytes, repeated: bytes) -> Iterator[bytes]:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    yield packer.compress(head)
    for _ in range(200):
        yield packer.compress(repeated)
    yield packer.flush()


@pytest.mark.parametrize(("head", "repeated", "said"), BOMBS.values(), ids=BOMBS.keys())
def test_a_gzip_bomb(tmp_path: Path, head: bytes, repeated: bytes, said: str) -> None:
    """A process that may have half a gigabyte reads it, and says what it is."""
    path = tmp_path / "t.json.gz"
    path.write_bytes(b"".join(bombed(head, repeated)))
    program = "from instrumented_backend.commands import main; main()"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (HALF_A_GIGABYTE, HALF_A_GIGABYTE))

    done = subprocess.run(
        [sys.executable, "-c", program, "trace", str(path)],
        capture_output=True,
        text=True,
        preexec_fn=limit,
        timeout=60,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr and done.stderr.count("\n") == 1


def read(path: Path) -> list[float | None]:
    return [event.ts for events in EventStream(path) for event in events]


@pytest.mark.parametrize("count", [1, 3])
def test_a_large_event(tmp_path: Path, count: int) -> None:
    """One just below the limit is read; of larger ones the file is refused, wherever they stand."""
    fits = {**kernel(2, 1), "args": {"x": [{}, {}], "y": "a" * (MAX_EVENT_BYTES - 1000)}}
    path = write(tmp_path / "fits.json", [kernel(1, 1), fits, kernel(3, 1)])
    assert read(path) == [1, 2, 3]
    large = {**kernel(2, 1), "args": {"x": [{}, {}], "y": "a" * (MAX_EVENT_BYTES + 1_000_000)}}
    path = write(tmp_path / "large.json", [kernel(1, 1)] * (count - 1) + [large])
    with pytest.raises(TraceError, match="an event of more than 16 MB"):
        read(path)


def test_nesting(tmp_path: Path) -> None:
    for depth, fits in ((400, True), (100_000, False)):
        deep = "[" * depth + "]" * depth
        for text in (
            '{"traceEvents": [{"ts": 1, "args": {"x": DEEP}}]}',
            '{"traceEvents": [{"ts": 1}], "x": DEEP}',
            '{"x": DEEP, "traceEvents": [{"ts": 1}]}',
            '{"traceEvents": [{"ts": 1, "name": "\n", "x": DEEP}]}',
        ):
            path = tmp_path / "t.json"
            path.write_text(text.replace("DEEP", deep))
            if fits:
                assert read(path) == [1]
            else:
                with pytest.raises(TraceError, match="nested too deep"):
                    read(path)


HUGE = "9" * 5000


@pytest.mark.parametrize("number", [str(2**63), "9" * 400, HUGE])
@pytest.mark.parametrize("place", ["pid", "tid", "correlation", "device"])
def test_numbers_of_more_than_64_bits(tmp_path: Path, number: str, place: str) -> None:
    """Their event is left out, or has them as text; the others are read."""
    event = json.dumps(
        {**kernel(5, 5, correlation=1), place: 7, "args": {"correlation": 1, "device": 0, place: 7}}
    )
    path = tmp_path / "t.json"
    good = json.dumps(kernel(1, 2))
    odd = event.replace(f'"{place}": 7', f'"{place}": {number}')
    path.write_text(f'{{"traceEvents": [{good}, {odd}, {good}]}}')
    done = call("trace", path, "--format", "json")
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    assert call("trace", path).returncode == 0


def test_numbers_of_the_file_itself(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        f'{{"schemaVersion": 1, "distributedInfo": {{"rank": {HUGE}, "world_size": {HUGE}}},'
        f'"deviceProperties": [{{"id": {HUGE}, "name": "x"}}], "traceEvents": ['
        f"{json.dumps(kernel(1, 2))}]}}"
    )
    (trace,) = json.loads(call("trace", path, "--format", "json").stdout)["traces"]
    assert (trace["rank"], trace["world_size"]) == (None, None)


def test_steps_of_a_thousand_digits(tmp_path: Path) -> None:
    events = [annotation(0, 10, f"ProfilerStep#{n}") for n in (3, HUGE)]
    path = write(tmp_path / "t.json", [*events, kernel(1, 2)])
    assert call("trace", path, "--range", "#3").returncode == 0
    for text in (f"#{HUGE}", f"#3-{HUGE}", f"{HUGE}-", f"-{HUGE}ms", f"1.{HUGE}-", f"0-1{HUGE}"):
        done = call("trace", path, "--range", text)
        assert is_one_line(done) and len(done.stderr) < 300
        with pytest.raises(ValueError, match="is no range"):
            TimeRange.parse(text)


def both_lists(first: int, second: int) -> str:
    lists = [json.dumps([kernel(10 * i, 1) for i in range(count)]) for count in (first, second)]
    return f'{{"traceEvents": {lists[0]}, "a": 1, "traceEvents": {lists[1]}, "schemaVersion": 1}}'


@pytest.mark.parametrize(("first", "second"), [(2, 1), (1, 3), (0, 2), (5000, 3), (3, 5000)])
def test_a_second_list_of_events_is_told_in_every_format(
    tmp_path: Path, first: int, second: int
) -> None:
    path = tmp_path / "t.json"
    path.write_text(both_lists(first, second))
    stream = EventStream(path)
    assert sum(map(len, stream)) == first
    assert stream.second_list and stream.fields.schemaVersion == 1
    if first:
        for said in told(path):
            assert 'a second list of "traceEvents": left out' in said


def told(path: Path) -> list[str]:
    """The notes as a table, as JSON and as CSV, of both tables."""
    table = call("trace", path).stdout
    (trace,) = json.loads(call("trace", path, "--format", "json").stdout)["traces"]
    rows = [
        next(csv.DictReader(io.StringIO(call("trace", path, "--format", "csv", *more).stdout)))
        for more in ((), ("--tables", "kernels"))
    ]
    return [table, "\n".join(trace["notes"]), *(row["notes"] for row in rows)]


def test_events_left_out_are_told_in_every_format(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [kernel(1, 2), 7, {**kernel(3, 4), "dur": -1}])
    for said in told(path):
        assert "1 event malformed: left out" in said
        assert "1 event with a negative dur: left out" in said


def test_a_key_inside_names_is_no_second_list(tmp_path: Path) -> None:
    events = [kernel(1, 2, 'x "traceEvents": [] "traceEvents"'), kernel(3, 4)]
    path = write(tmp_path / "t.json", events, a={"traceEvents": [], "b": {"traceEvents": 1}})
    stream = EventStream(path)
    assert sum(map(len, stream)) == 2 and not stream.second_list


def test_many_keys_before_the_events(tmp_path: Path) -> None:
    """Each is tried, which takes time that grows with what stands before it."""
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"x": [{"traceEvents": []}] * 100_000, "traceEvents": []}))
    with pytest.raises(TraceError, match='no list of "traceEvents"'):
        read(path)


def test_pipes_and_devices(tmp_path: Path) -> None:
    pipe = tmp_path / "report.rank0.pid1.json"
    os.mkfifo(pipe)
    for command in ("show", "trace", "kernels", "bench"):
        for path in (pipe, Path("/dev/zero")):
            done = call(command, path)
            assert is_one_line(done) and "not a file, but a pipe or a device" in done.stderr
    done = call("show", tmp_path)
    assert is_one_line(done) and "no report.rank<R>.pid<P>.json in this folder" in done.stderr


def test_more_gpus_than_there_are(tmp_path: Path) -> None:
    """Each looks through all activities: very many would never end."""
    few, many = (
        write(tmp_path / name, [kernel(i, 1, device=i) for i in range(number)])
        for name, number in (("few.json", 1024), ("many.json", 1025))
    )
    assert len(read_trace(few).devices) == 1024
    with pytest.raises(TraceError, match="more than 1,024 GPUs in it"):
        read_trace(many)
