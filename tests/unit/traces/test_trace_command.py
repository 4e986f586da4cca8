"""The command ``trace``, and what it prints."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from paths import DATA
from traces import ALL_REDUCE, GEMM, annotation, copy, kernel, launch, op, write

from instrumented_backend.profiling import read_trace, time_of
from instrumented_backend.views.output import render_view
from instrumented_backend.views.trace import TracesView


def trace(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "instrumented_backend", "trace", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def rank(folder: Path, number: int) -> Path:
    """1000 µs; busy for 100 µs more with each rank, half of it matrix work; some NCCL and copy."""
    busy = 100 * (number + 1)
    events = [
        op(0, 1000),
        annotation(0, 500, "ProfilerStep#1"),
        annotation(5, 10, "TORCHDYNAMO"),
        launch(10, 2, 1),
        kernel(100, busy / 2, GEMM, device=number, correlation=1),
        kernel(100 + busy / 2, busy / 2, device=number),
        kernel(800, 50, ALL_REDUCE, device=number),
        copy(900, 20, device=number),
    ]
    return write(
        folder / f"rank{number}.json",
        events,
        distributedInfo={"rank": number, "world_size": 2},
        deviceProperties=[{"id": number, "name": "NVIDIA H100"}],
    )


def test_the_table(tmp_path: Path) -> None:
    done = trace(rank(tmp_path, 1), rank(tmp_path, 0))
    assert done.returncode == 0 and done.stderr == ""
    lines = [line.split() for line in done.stdout.splitlines()]
    # Rank 0: busy 100 + 50 + 20 of 1000, compute 100, matrix 50, NCCL 50 and all exposed, copy 20.
    # Captured: the GEMM's 50; of the rest the calls are unknown.
    assert ["0", "0", "17.0", "10.0", "5.0", "5.0", "5.0", "2.0", "100.0"] in lines
    # Rank 1: compute 200, matrix 100.
    assert ["1", "1", "27.0", "20.0", "10.0", "5.0", "5.0", "2.0", "100.0"] in lines
    assert ["mean", "22.0", "15.0", "7.5", "5.0", "5.0", "2.0", "100.0"] in lines
    # Idle 83 %: until 10 the host's, to 100 under way, the last 80 (from 920) the host's again,
    # the rest (850 to 900, 200 to 800) before activities without a call.
    assert ["0", "0", "83.0", "9.0", "9.0", "0.0", "65.0"] in lines
    assert "rank0.json · rank 0 of 2 · NVIDIA H100 · window 1.000 ms" in done.stdout
    assert "kernels of GPU 1, rank 1" in done.stdout
    assert done.stdout.index("rank0.json") < done.stdout.index("rank1.json")


def test_json(tmp_path: Path) -> None:
    done = trace(rank(tmp_path, 0), "--format", "json", "--top", 1)
    values = json.loads(done.stdout)
    assert values["schema_version"] == 1
    (one,) = values["traces"]
    (device,) = one["devices"]
    assert (one["rank"], one["window_us"], one["captured_by"]) == (0, 1000, "TORCHDYNAMO")
    assert one["busy_share"] == device["busy_share"] == 0.17
    assert (device["busy_us"], device["matrix_us"], device["idle_us"]) == (170, 50, 830)
    assert [k["name"] for k in device["kernels"]] == [ALL_REDUCE]


def test_csv(tmp_path: Path) -> None:
    paths = rank(tmp_path, 0), rank(tmp_path, 1)
    rows = list(csv.DictReader(io.StringIO(trace(*paths, "--format", "csv").stdout)))
    assert [(row["rank"], row["busy_us"], row["busy_share"]) for row in rows] == [
        ("0", "170.0", "0.17"),
        ("1", "270.0", "0.27"),
    ]
    done = trace(*paths, "--format", "csv", "--tables", "kernels", "--top", 2)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["rank"], row["kind"], row["total_us"]) for row in rows] == [
        ("0", "communication", "50.0"),
        ("0", "gemm", "50.0"),
        ("1", "gemm", "100.0"),
        ("1", "other", "100.0"),
    ]


def test_a_range(tmp_path: Path) -> None:
    path = rank(tmp_path, 0)
    for within in ("ProfilerStep#1", "0-500us"):
        values = json.loads(trace(path, "--format", "json", "--range", within).stdout)
        assert values["traces"][0]["window_us"] == 500
        assert values["traces"][0]["busy_share"] == 0.2


def test_without_a_gpu_nothing_is_zero(tmp_path: Path) -> None:
    path = write(tmp_path / "cpu.json", [op(0, 100)])
    values = json.loads(trace(path, "--format", "json").stdout)["traces"][0]
    assert values["busy_share"] is None and values["devices"] == []
    assert values["notes"] == ["no GPU activity in it: how busy a GPU was is unknown"]
    done = trace(path)
    assert "note: no GPU activity in it" in done.stdout
    assert ["cpu", *"--------"] in [line.split() for line in done.stdout.splitlines()]
    (row,) = csv.DictReader(io.StringIO(trace(path, "--format", "csv").stdout))
    assert row["window_us"] == "100.0" and row["busy_us"] == row["busy_share"] == ""


def test_the_real_traces_fit_a_terminal() -> None:
    done = trace(DATA / "h100_eager_step.json.gz", DATA / "h100_inductor_step.json.gz")
    assert done.returncode == 0 and done.stderr == ""
    assert "the 10 longest of 55" in done.stdout
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []


def test_what_a_csv_lacks_is_the_same_for_gpus_and_none(tmp_path: Path) -> None:
    gpu, cpu = (
        time_of(read_trace(write(tmp_path / "t.json", [event])))
        for event in (kernel(0, 1), op(0, 1))
    )
    files = [render_view(TracesView([time], ("devices",), 1), "csv") for time in (gpu, cpu)]
    headers = [file.splitlines()[0] for file in files]
    assert set(headers[0].split(",")) == set(headers[1].split(","))


def test_same_gpu_index_under_two_pids(tmp_path: Path) -> None:
    events = [kernel(0, 10), {**kernel(0, 5), "pid": 9}]
    time = time_of(read_trace(write(tmp_path / "t.json", events)))
    text = TracesView([time], ("devices",), 0).text(80)
    assert "0 (pid 0)  100.0" in text and "0 (pid 9)   50.0" in text
    assert len(json.loads(TracesView([time], (), 0).json())["traces"][0]["devices"]) == 2


def test_long_names_are_cut_in_text_only(tmp_path: Path) -> None:
    name = "void at::native::(anonymous namespace)::" + "x" * 200
    time = time_of(read_trace(write(tmp_path / "t.json", [kernel(0, 10, name)])))
    text = TracesView([time], ("kernels",), 1).text(80)
    assert "at::native::xxx" in text and max(map(len, text.splitlines())) == 80
    assert name in render_view(TracesView([time], ("kernels",), 1), "csv")


def test_shares_side_by_side_fit_the_terminal(tmp_path: Path) -> None:
    """Files by their names without what all names end with; then columns are left out."""
    paths = [DATA / f"h200_ddp_rank{rank}.json.gz" for rank in range(2)]
    times = [time_of(read_trace(path)) for path in (*paths, DATA / "h100_inductor_step.json.gz")]
    for width in (60, 80, 200):
        lines = TracesView(times, ("devices",), 0).text(width).splitlines()
        assert max(map(len, lines)) <= width
        head = next(line for line in lines if line.startswith("trace ")).split()
        assert {"busy", "compute", "comm", "captured"} <= set(head)
        assert ("copy" in head) == (width > 60)
        for name in ("h200_ddp_rank0", "h200_ddp_rank1", "h100_inductor_step"):
            assert sum(line.split()[:1] == [name] for line in lines) == 2
    alike = [write(tmp_path / name, [kernel(0, 10)]) for name in ("a.json", "a.pt.trace.json")]
    text = TracesView([time_of(read_trace(path)) for path in alike], ("devices",), 0).text(80)
    rows = [line.split()[:2] for line in text.splitlines()]
    assert ["a.json", "0"] in rows and ["a.pt.trace.json", "0"] in rows


def test_progress_on_long_reads(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    event = json.dumps(op(0, 1))
    path.write_text("[" + ",".join([event] * (21_000_000 // len(event))) + "]")
    done = trace(path, "--format", "json")
    assert json.loads(done.stdout)["traces"][0]["devices"] == []
    assert done.stderr == "reading long.json\n"


GOOD = json.dumps({"traceEvents": [kernel(0, 1)]}).encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file"),
        (b"nonsense", "not JSON"),
        (GOOD[:40], "not JSON, or cut short"),
        (gzip.compress(GOOD)[:-4], "cut short"),
        (b'{"a": 1}', 'no list of "traceEvents"'),
        (b'{"traceEvents": []}', "no events in it"),
        (b'{"traceEvents": [{"cat": "v8", "ts": 1}]}', "no event of PyTorch's profiler"),
    ],
)
def test_bad_input_in_one_line(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "t.json"
    if content is not None:
        path.write_bytes(content)
    refused(path, said, path)


def refused(path: object, said: str, *arguments: object) -> None:
    done = trace(*arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert str(path) in done.stderr and said in done.stderr


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = []
    for folder in ("before", "after"):
        (tmp_path / folder).mkdir()
        paths.append(write(tmp_path / folder / "trace.json", [op(0, 9), kernel(1, 2, GEMM)]))
    done = trace(*paths)
    for name in ("before/trace.json", "after/trace.json"):
        assert f"\n{name} · " in f"\n{done.stdout}"
        label = name.removesuffix(".json")
        assert any(line.split()[:2] == [label, "0"] for line in done.stdout.splitlines())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_nowhere_to_write(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "instrumented_backend", "trace", str(rank(tmp_path, 0))]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "instrumented-backend: cannot write the output: No space left on device\n"
    )


def test_bad_arguments_in_one_line(tmp_path: Path) -> None:
    path = rank(tmp_path, 0)
    refused(tmp_path, "Is a directory", tmp_path)
    refused(tmp_path, "Is a directory", path, tmp_path)
    refused("", "is no range; give steps", path, "--range", "soon")
    refused(path, "no such step; the steps in it: 1", path, "--range", "#4")
    refused(path, "behind its end", path, "--range", "2ms-")
    refused("", "CSV has one table", path, "--format", "csv", *["--tables", "kernels"] * 2)


def test_the_command_imports_no_torch(tmp_path: Path) -> None:
    program: Any = (
        "import sys; from instrumented_backend.commands import cli;"
        f"cli.main(['trace', {str(rank(tmp_path, 0))!r}], standalone_mode=False);"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0
