"""The benchmark as a program, and the process that measures for it."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import operatorbench
import pytest
import torch
from click.testing import CliRunner
from opbench import sample as sample_module
from opbench.results import FAILED, OK, SKIPPED
from opbench.task import Settings, Task
from opbench.worker import Worker
from running_operatorbench import BENCHMARK, INPUTS, Ran, run
from waiting import wait_until


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    options = ("--op", "all", "--max-samples", "2", "--accuracy-checking")
    return run(tmp_path_factory.mktemp("operatorbench"), *options)


@pytest.mark.full
def test_every_operator_has_a_row_or_a_reason(whole: Ran) -> None:
    assert whole.code == 1, whole.err  # one sample of mm is wrong
    data = whole.data
    found = {(item["operator"], item["sample"]): item["status"] for item in data["samples"]}
    assert found == {
        ("aten.add.Tensor", 0): OK,
        ("aten.add.Tensor", 1): OK,
        ("aten.embedding.default", 0): OK,
        ("aten.mm.default", 0): FAILED,
        ("aten.mm.default", 1): OK,
        ("aten.mul_.Tensor", 0): OK,
        ("aten.native_layer_norm.default", 0): OK,
    }
    assert data["skipped_operators"] == {
        "aten.gone.default": f"torch {torch.__version__} has no operator aten.gone.default",
        "aten.split.Tensor": "a view: it moves no data",
    }


@pytest.mark.full
def test_the_lines_on_stdout(whole: Ran) -> None:
    lines = whole.out.splitlines()
    place = lines.index("aten.add.Tensor: 2 of 2 samples timed")
    assert lines[place + 1].startswith("Inductor Speedups : [")
    assert lines[place + 2].startswith("Instrumented Speedups : [")
    assert "  aten.split.Tensor: a view: it moves no data" in lines
    assert "failed (1 of 7 samples):" in lines
    assert any("aten.mm.default sample 0: RuntimeError: " in line for line in lines)
    place = next(number for number, line in enumerate(lines) if line.endswith("; written:"))
    assert [Path(line.strip()).exists() for line in lines[place + 1 : place + 4]] == [True] * 3
    assert whole.err == ""


@pytest.mark.full
def test_what_is_kept_of_a_sample(whole: Ran) -> None:
    samples = {(item["operator"], item["sample"]): item for item in whole.data["samples"]}
    most_frequent = samples["aten.add.Tensor", 0]
    assert (most_frequent["count"], most_frequent["inputs"]) == (9, "((T([8], f16), 1.0), {})")
    add = samples["aten.add.Tensor", 1]
    assert [kernel["kernel_name"] for kernel in add["kernels"]] == ["cpp_fused_add_0"]
    # Two tensors of 64·32 float32 read, one written: 3 · 8192 bytes.
    assert (add["total_bytes"], add["bytes_source"]) == (24_576, "kernels")
    eager, inductor = add["backends"]["eager"], add["backends"]["inductor"]
    assert eager["speedup"] == 1 and eager["low_us"] <= eager["median_us"] <= eager["high_us"]
    assert inductor["speedup"] == pytest.approx(eager["median_us"] / inductor["median_us"])
    assert eager["gb_per_s"] == pytest.approx(24_576 / eager["median_us"] / 1e3)
    assert add["accuracy"] == {"inductor": "ok", "instrumented": "ok"}
    product = samples["aten.mm.default", 1]
    assert product["kernels"][0]["language"] == "extern"
    assert product["flops"] == 2 * 4 * 5 * 7
    assert samples["aten.mul_.Tensor", 0]["accuracy"]["inductor"] == "ok"


@pytest.mark.full
def test_files(whole: Ran) -> None:
    timings = whole.one("timings_inputs_allfloat32.txt").read_text().splitlines()
    assert [line.partition(":")[0] for line in timings] == [
        "aten.add.Tensor",
        "aten.embedding.default",
        "aten.mm.default",
        "aten.mul_.Tensor",
        "aten.native_layer_norm.default",
    ]
    assert all(": Inductor Speedups : [" in line for line in timings)
    with whole.one("operatorbench_inputs_all_float32_cpu.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 7
    assert rows[3]["reason"].startswith("RuntimeError: ")


@pytest.mark.full
def test_going_on_where_a_run_was_stopped(whole: Ran) -> None:
    journal = whole.one("*.jsonl")
    head, *lines = journal.read_text().splitlines(keepends=True)
    # Four samples, with a mark that no measurement has, and part of a line.
    kept = [json.dumps({**json.loads(line), "seconds": -1.0}) + "\n" for line in lines[:4]]
    journal.write_text(head + "".join(kept) + lines[4][:40])
    options = ("--op", "all", "--max-samples", "2", "--accuracy-checking", "--resume")
    again = run(whole.folder.parent, *options)
    assert again.code == 1
    after = again.data["samples"]
    assert [item["seconds"] == -1 for item in after] == [True] * 4 + [False] * 3
    other = run(whole.folder.parent, "--op", "all", "--max-samples", "2", "--resume")
    assert other.code == 2
    assert "had accuracy_checking True, this one has False" in " ".join(other.err.split())


@pytest.mark.full
def test_interrupted_it_shows_what_is_done(tmp_path: Path) -> None:
    many = "".join(f"cnt: 1, ((T([{size}], f16), 1.0), {{}})\n" for size in range(9, 3000))
    (tmp_path / "inputs.txt").write_text("Operator: aten.add.Tensor\n" + many)
    command = [sys.executable, BENCHMARK, "--inp-file", tmp_path / "inputs.txt", "--device", "cpu"]
    command += ["--out", tmp_path / "out", "--max-samples", "3000"]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    journal = tmp_path / "out" / "operatorbench_inputs_all_float32_cpu.jsonl"
    wait_until(lambda: journal.exists() and len(journal.read_text().splitlines()) > 2)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 130
    done = len(journal.read_text().splitlines()) - 1
    assert f"Stopped after {done} of 2991 samples; --resume goes on." in " ".join(out.split())
    assert len(json.loads(next((tmp_path / "out").glob("*.json")).read_text())["samples"]) == done


# --- The measuring process ----------------------------------------------------------------------


SETTINGS = Settings(("eager", "inductor"), "cpu", "float32", 1, False, False)
ADD = Task("aten.add.Tensor", 0, "((T([8], f16), 1.0), {})", 9)


@pytest.mark.full
def test_a_crash_or_a_hang_costs_one_sample(tmp_path: Path) -> None:
    worker = Worker(SETTINGS, tmp_path / "log")
    try:
        worker.start()
        assert worker.machine is not None and worker.peak is not None and worker.peak.gb_per_s > 0
        pid = worker._process.pid
        assert os.getsid(pid) == pid  # Ctrl-C in a terminal is the parent's alone
        os.kill(pid, signal.SIGSEGV)
        crashed = worker.measure(ADD, 600)
        assert (crashed.status, crashed.reason) == (FAILED, "the process died of SIGSEGV")
        worker.start()
        os.kill(worker._process.pid, signal.SIGSTOP)
        hung = worker.measure(ADD, 0.001)
        assert (hung.status, hung.reason) == (
            FAILED,
            "no answer in 0.001 s: the process was killed",
        )
        after = worker.measure(ADD, 600)
        assert (after.status, after.operator, after.count) == (OK, "aten.add.Tensor", 9)
        assert after.kernels is None  # the backend that reports them is not among these
        assert after.notes == ["kernels unknown: instrumented is not among the backends"]
        pid = worker._process.pid
    finally:
        worker.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_does_not_fit_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task("aten.add.Tensor", 0, "((T([1000, 1000], f16), T([1000], f16)), {})", 1)
    # float32: 4.004 MB in, 4 MB out; twice the inputs and a result for two backends and one more.
    monkeypatch.setattr(sample_module, "_bytes_free", lambda device: 20_000_000)
    skipped = sample_module.measure(task, SETTINGS)
    assert skipped.status == SKIPPED
    assert skipped.reason == "would take about 0.02 GB, 0.02 GB are free"
    assert skipped.complaint == skipped.reason


def test_a_mask_gives_any_shape() -> None:
    task = Task("aten.index.Tensor", 0, "((T([4, 2], f16), [T([4], b8)]), {})", 1)
    skipped = sample_module.measure(task, SETTINGS)
    assert skipped.status == SKIPPED and "depends on data" in str(skipped.reason)


def test_an_inaccurate_backend_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        return lambda *args: [-result for result in gm(*args)]

    monkeypatch.setattr(sample_module, "lookup_backend", lambda name: wrong)
    settings = Settings(("eager", "inductor"), "cpu", "float32", 1, True, False)
    found = sample_module.measure(ADD, settings)
    assert found.status == OK
    assert found.accuracy["inductor"].startswith("result 0: cosine -1.0000")
    assert "largest difference" in str(found.complaint)


@pytest.mark.parametrize(
    "operator, text",
    [
        (
            "aten.native_layer_norm_backward.default",  # a result that is None
            "((T([4, 8], f16), T([4, 8], f16), [8], T([4, 1], f32), T([4, 1], f32), T([8], f16), "
            "T([8], f16), [True, False, True]), {})",
        ),
        ("aten.split_with_sizes_copy.default", "((T([10, 4], f16), [3, 7]), {})"),  # a list
        ("aten.copy_.default", "((T([4, 8], f16), T([4, 8], f16, stride=(0, 1))), {})"),
    ],
)
def test_results_of_every_shape(operator: str, text: str) -> None:
    settings = Settings(("eager", "aot_eager"), "cpu", "float32", 1, True, False)
    found = sample_module.measure(Task(operator, 0, text, 1), settings)
    assert (found.status, found.reason, found.accuracy) == (OK, None, {"aot_eager": "ok"})


def test_channels_last() -> None:
    text = "((T([2, 3, 8, 8], f16), T([4, 3, 1, 1], f16), None, [1, 1], [0, 0], [1, 1], False, "
    task = Task("aten.convolution.default", 0, text + "[0, 0], 1), {})", 1)
    settings = Settings(("eager", "aot_eager"), "cpu", "float32", 1, True, True)
    found = sample_module.measure(task, settings)
    assert (found.status, found.accuracy) == (OK, {"aot_eager": "ok"})


# --- Arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, complaint",
    [
        (["--op", "aten.add.Scalar"], "aten.add.Scalar is not among the inputs; it has aten.add.T"),
        (["--op", "add"], "it has aten.add.Tensor"),
        (["--op", "__import__('os')"], "--list-ops names those that are"),
        (["--backends", "eager,inductr"], "'inductr'; choose from"),
        (["--backends", "eager"], "at least two different ones"),
        (["--dtype", "float64"], "'float64' is not one of"),
        (["--max-samples", "0"], "0 is not in the range"),
        (["--timeout", "0"], "0.0 is not in the range"),
        pytest.param(
            ["--device", "cuda"],
            "this torch sees no CUDA device",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
        ),
    ],
)
def test_wrong_arguments(options: list[str], complaint: str, tmp_path: Path) -> None:
    log = tmp_path / "inputs.txt"
    log.write_text(INPUTS)
    arguments = ["--device", "cpu", "--inp-file", str(log), "--out", str(tmp_path), *options]
    done = CliRunner().invoke(operatorbench.main, arguments)
    assert done.exit_code == 2
    assert complaint in " ".join(done.output.replace("│", " ").split())
    assert [path.name for path in tmp_path.iterdir()] == ["inputs.txt"]


def test_a_hostile_file_is_named_with_its_line(tmp_path: Path) -> None:
    log = tmp_path / "inputs.txt"
    hit = tmp_path / "hit"
    log.write_text(INPUTS + f"cnt: 1, ((__import__('os').system('touch {hit}'),), {{}})\n")
    done = CliRunner().invoke(operatorbench.main, ["--inp-file", str(log)])
    assert done.exit_code == 2
    assert f"{log}:18: " in done.output  # INPUTS has 17 lines
    assert not hit.exists()


def test_listing(tmp_path: Path) -> None:
    log = tmp_path / "inputs.txt"
    log.write_text(INPUTS)
    done = CliRunner().invoke(
        operatorbench.main, ["--inp-file", str(log), "--list-ops", "--device", "cpu"]
    )
    assert done.exit_code == 0
    assert "aten.add.Tensor: 3 samples, 15 calls" in done.output.splitlines()
    assert "aten.split.Tensor: skipped: a view: it moves no data" in done.output.splitlines()
