"""The command ``bench`` on what plain Inductor left, and on modules that crash, hang or run dry."""

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kernel_data import graph_module, modules
from waiting import wait_until

from instrumented_backend import commands
from instrumented_backend.bench import driver, events
from instrumented_backend.bench.driver import Options
from instrumented_backend.bench.targets import device_of, find_targets
from instrumented_backend.kernels.code_files import CodeFileError
from instrumented_backend.records.bench import BenchRun, Peak
from instrumented_backend.views.bench import BenchView
from instrumented_backend.views.output import render_view

TOOL = (sys.executable, "-m", "instrumented_backend", "bench")

# An embedding, whose indices have to stay in range, products, and a backward.
PROGRAM = """
import torch

def f(ids, table, weight):
    return torch.relu(table[ids]) @ weight @ weight

table = torch.randn(50, 32)
weight = torch.randn(32, 32, requires_grad=True)
result = torch.compile(f, backend="inductor")(torch.randint(0, 50, (64,)), table, weight)
result.backward(torch.ones_like(result))
"""


@pytest.fixture(scope="module")
def cache(isa_checks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a program with plain Inductor leaves, no setting made."""
    folder = shutil.copytree(isa_checks, tmp_path_factory.mktemp("cache") / "inductor")
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(folder)}
    run(sys.executable, "-c", PROGRAM, **environment).check_returncode()
    return folder


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        command, capture_output=True, text=True, timeout=900, env={**os.environ, **environment}
    )


@pytest.fixture(scope="module")
def benched(cache: Path) -> dict[str, Any]:
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*.so")}
    done = run(*TOOL, str(cache), "--json", "--profile", "--time-limit", "300")
    assert done.returncode == 0, done.stderr
    # Nothing was recompiled: the shared objects are those that the program left.
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.so")} == before
    document: dict[str, Any] = json.loads(done.stdout)
    document["stderr"] = done.stderr
    return document


@pytest.mark.full
def test_every_kernel_of_a_program_is_timed(benched: dict[str, Any], cache: Path) -> None:
    generated = {
        name
        for path in cache.glob("??/*.py")
        for name in re.findall(r"^(cpp_\w+) = async_compile", path.read_text(), re.MULTILINE)
    }
    rows = benched["kernels"]
    assert generated and generated <= {row["kernel_name"] for row in rows}
    for row in rows:
        assert row["error"] is None and row["samples"] >= 1
        assert 0 < row["ms_min"] <= row["ms_p25"] <= row["ms"] <= row["ms_p75"]
        assert row["calls"] >= 1
        # Plain Inductor writes no comment on what a C++ kernel was made from.
        assert row["aten_ops"] or row["language"] == "cpp"
    externs = [row for row in rows if row["language"] == "extern"]
    assert externs and all(row["gflop_per_s"] > 0 for row in externs)


@pytest.mark.full
def test_rates_follow_from_the_times(benched: dict[str, Any]) -> None:
    (peak,) = benched["peaks"]
    assert peak["device"] == "cpu" and peak["compared_with"] == "measured copy"
    for row in benched["kernels"]:
        rate = row["total_bytes"] / row["ms"] / 1e6
        assert row["gb_per_s"] == pytest.approx(rate)
        assert row["peak_pct"] == pytest.approx(100 * rate / peak["copy_gb_per_s"])
        assert row["peak_source"] == "measured copy"
        assert row["peak_pct"] <= 105 or any("faster than" in note for note in row["notes"])


@pytest.mark.full
def test_the_whole_call_beside_its_kernels(benched: dict[str, Any]) -> None:
    assert len(benched["graphs"]) == 2
    for graph in benched["graphs"]:
        assert graph["error"] is None and graph["call"]["ms"] > 0
        rows = [row for row in benched["kernels"] if row["path"] == graph["path"]]
        expected = sum(row["ms"] * row["calls"] for row in rows)
        assert graph["kernels_ms"] == pytest.approx(expected)


@pytest.mark.full
def test_profile_reports(benched: dict[str, Any]) -> None:
    """With json they are in the document, and on stderr."""
    assert benched["stderr"].count("Output for tabulate: ") == 2
    reports = [graph["profile"] for graph in benched["graphs"]]
    assert all("Percent of time when CPU is busy: " in report for report in reports)
    assert any("cpp_fused_index_relu_0" in report for report in reports)


# --- What goes wrong ----------------------------------------------------------------------------


def with_kernel(cache: Path, folder: Path, body: str) -> Path:
    """The forward's module, its last C++ kernel replaced by a Python function."""
    text = next(
        text
        for path in cache.glob("??/*.py")
        if "_forward']" in (text := path.read_text()).partition("\n")[0]
    )
    name = re.findall(r"^(cpp_\w+) = async_compile", text, re.MULTILINE)[-1]
    replaced = (
        f"async_compile.wait(globals())\ndef {name}(*args):\n    import os, signal\n    {body}\n"
    )
    path = folder / "module.py"
    path.write_text(text.replace("async_compile.wait(globals())", replaced, 1))
    return path


@pytest.fixture
def known_peak(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No bandwidth is measured where no figure is looked at, and no kernel recompiled."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))

    def measured(run: BenchRun, targets: Any) -> dict[str, str]:
        run.peaks["cpu"] = Peak("cpu", "some CPU", 10.0, 1 << 28)
        return {}

    monkeypatch.setattr(driver, "_measure_peaks", measured)


# Leaves a file beside its module.
HANG = "open(f'{__file__}.hangs', 'w').close(); signal.pause()"


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of time is that of a kernel that hangs; others may take as long as they like."""
    original, hangs = driver.Child.next, tmp_path / "module.py.hangs"

    def next_event(child: driver.Child, limit_s: float) -> events.Event:
        wait_until(lambda: hangs.exists() or not child._events.empty())
        event = original(child, limit_s)
        if isinstance(event, events.Gone):
            hangs.unlink(missing_ok=True)
        return event

    monkeypatch.setattr(driver.Child, "next", next_event)


def bench_one(path: Path, **options: Any) -> BenchRun:
    return driver.bench(find_targets([path]).modules, Options(**options))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the process died of SIGSEGV"),
        (HANG, "no result after 1 s: stopped"),
        ("torch.empty(1 << 45)", "out of memory: "),
    ],
)
@pytest.mark.full
@pytest.mark.usefixtures("known_peak", "patient")
def test_one_kernel_costs_one_row(cache: Path, tmp_path: Path, body: str, said: str) -> None:
    run = bench_one(
        with_kernel(cache, tmp_path, body),
        time_limit_s=1.0,
        all_configs=body.startswith("torch"),
    )
    failed = [record for record in run.kernels if record.error is not None]
    assert [record.kernel.language for record in failed] == ["cpp"]
    assert (failed[0].error or "").startswith(said)
    assert len(run.kernels) > 1 and run.graphs[0].kernels_ms is None
    names = [record.kernel.kernel_name for record in run.kernels]
    assert len(set(names)) == len(names)  # no configurations but Triton's
    rows = list(csv.DictReader(io.StringIO(render_view(BenchView(run), "csv"))))
    assert [row["kernel_name"] for row in rows] == names
    text = render_view(BenchView(run), "table")
    assert text.startswith(
        "some CPU: copies 10 GB/s (measured); shares of peak are of the measured"
    )
    assert f"not timed: {failed[0].kernel.kernel_name}: {said}" in " ".join(text.split())
    # At 80 columns, but for words that are longer, such as paths.
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in text.splitlines())


@pytest.mark.full
@pytest.mark.usefixtures("known_peak")
def test_inputs_beyond_the_memory_limit(cache: Path, tmp_path: Path) -> None:
    path = with_kernel(cache, tmp_path, "pass")
    text = path.read_text().replace(
        "rand_strided((50, 32), (32, 1)", "rand_strided((50 << 30, 32), (32, 1)"
    )
    path.write_text(text)
    run = bench_one(path, memory_limit_bytes=1 << 32)
    assert run.kernels and all(
        (record.error or "").startswith("out of memory: ") for record in run.kernels
    )


@pytest.mark.full
@pytest.mark.usefixtures("known_peak")
def test_an_interrupted_run_keeps_its_rows(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = find_targets([cache]).modules

    def interrupt(count: int) -> None:
        raise KeyboardInterrupt

    run = driver.bench(targets, Options(), interrupt)
    assert run.interrupted and run.kernels[0].timing is not None
    monkeypatch.setattr(driver, "bench", lambda *args: run)
    monkeypatch.setattr(sys, "argv", ["instrumented-backend", "bench", str(cache)])
    with pytest.raises(SystemExit) as ended:
        commands.main()
    assert ended.value.code == 130


# --- What is benchmarked ------------------------------------------------------------------------


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_devices_by_the_text() -> None:
    assert device_of(modules()["plain/pointwise.graph1.py"]) == "cuda"
    assert device_of(modules()["plain/pointwise.kernel1.py"]) == "cuda"
    assert device_of(modules()["cpp/dynamic.py"]) == "cpu"


def test_a_kernel_of_a_graph_is_benchmarked_once(tmp_path: Path) -> None:
    put(tmp_path, "a.graph1.py", modules()["plain/pointwise.graph1.py"])
    put(tmp_path, "a.kernel1.py", modules()["plain/pointwise.kernel1.py"])
    put(tmp_path, "b.kernel1.py", modules()["plain/scan.kernel1.py"])
    put(tmp_path, "other.py", "print('mine')")
    targets = find_targets([tmp_path, tmp_path])
    assert [(t.path.name, t.kind) for t in targets.modules] == [
        ("a.graph1.py", "graph"),
        ("b.kernel1.py", "kernel"),
    ]
    assert list(targets.left_out) == [str(tmp_path / "other.py")]


def test_the_cache_of_a_module(tmp_path: Path) -> None:
    assert driver.cache_of(tmp_path / "ab" / "cabgraph.py") == tmp_path
    assert driver.cache_of(tmp_path / "ab" / "graph.py") is None


def test_code_of_a_saved_report_is_found_again(tmp_path: Path) -> None:
    from sample_report import sample

    report = sample()
    code = put(tmp_path, "ab/cabgraph.py", modules()["cpp/dynamic.py"])
    report.graphs[0].code[0].path = str(code)
    file = put(tmp_path, "report.rank0.pid1.json", report.to_json())
    targets = find_targets([file])
    assert targets.modules[0].path == code and targets.modules[0].graph == report.graphs[0].graph
    gone = put(tmp_path, "report.rank1.pid2.json", report.to_json().replace("cabgraph", "gone"))
    targets = find_targets([tmp_path])  # its reports, not the code below it
    assert [target.graph for target in targets.modules] == [report.graphs[0].graph]
    assert str(gone) in targets.left_out
    code.unlink()
    with pytest.raises(
        CodeFileError, match=r"none of its generated code is found again: .*cabgraph"
    ):
        find_targets([file])
    assert not find_targets([tmp_path]).modules


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("missing.py", None, "no such file or folder"),
        ("other.py", "print('mine')", "not generated by Inductor"),
        ("broken.py", "def f(:\n", "not Python, or cut short"),
        ("report.json", "{}", "no schema_version in it"),
        ("wrapped.py", modules()["cpp/cpp_wrapper.py"], "its wrapper is C++ (cpp_wrapper)"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    done = run(*TOOL, str(path))
    assert done.returncode == 2 and done.stdout == ""
    assert said in done.stderr and len(done.stderr.splitlines()) == 1


def test_no_device_for_a_module(tmp_path: Path) -> None:
    path = put(tmp_path, "graph.py", modules()["plain/pointwise.graph1.py"])
    done = run(*TOOL, str(path), CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == f"instrumented-backend: {path}: no CUDA device here\n"


def test_help_says_that_code_is_run() -> None:
    done = run(*TOOL, "--help")
    assert done.returncode == 0 and "RUNS THE GENERATED CODE" in done.stdout


def test_no_process_for_a_kernel_that_needs_its_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tuning one matrix product leaves twenty modules of candidates."""

    def measured(run: BenchRun, targets: list[Any]) -> dict[str, str]:
        run.peaks["cuda"] = Peak("cuda", "some GPU", 10.0, 1 << 20)
        return {}

    def start(*args: object) -> None:
        raise AssertionError("a process was started")

    put(tmp_path, "template.kernel1.py", modules()["plain/template.kernel1.py"])
    monkeypatch.setattr(driver, "_measure_peaks", measured)
    monkeypatch.setattr(driver, "Child", start)
    done: list[int] = []
    (record,) = driver.bench(find_targets([tmp_path]).modules, Options(), done.append).kernels
    assert (record.kernel.kernel_name, done) == ("triton_mm", [1])
    assert record.error == (
        "a template kernel's module does not tell its grid: its graph's module does"
    )
    # With benchmark_kernel on, the one that was chosen does tell.
    put(tmp_path, "template.kernel22.py", modules()["bk/template.kernel22.py"])
    assert [target.error for target in find_targets([tmp_path]).modules] == [record.error, None]


@pytest.mark.usefixtures("known_peak")
def test_a_module_that_cannot_be_loaded(cache: Path, tmp_path: Path) -> None:
    path = with_kernel(cache, tmp_path, "pass")
    path.write_text("raise RuntimeError('too old')\n" + path.read_text())
    run = bench_one(path)
    assert {record.error for record in run.kernels} == {"RuntimeError: too old"}


@pytest.mark.full
def test_nothing_timed_is_a_failure(tmp_path: Path) -> None:
    path = put(tmp_path, "graph.py", graph_module("", "return args"))  # it imports nothing
    done = run(*TOOL, str(path))
    assert done.returncode == 1 and "name 'AsyncCompile' is not defined" in done.stdout
