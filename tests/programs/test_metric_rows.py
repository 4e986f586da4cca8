"""Rows of Inductor's metric tables, patched in this process."""

import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kernel_data
import pytest
import torch
from metric_csv import table

from instrumented_backend.kernels.sidecar import GeneratorFacts, Sidecar, write_sidecar
from instrumented_backend.observe.code.metric_tables import MetricTables
from instrumented_backend.observe.failures import Failures
from instrumented_backend.torch_compat import inductor, inductor_metrics

TABLES = ("slow_fusion", "graph_stats", "persistent_red_perf", "kernel_autotune", "kernel_metadata")


@pytest.fixture
def failures() -> Failures:
    return Failures()


@pytest.fixture
def patched(
    failures: Failures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MetricTables]:
    """The tables in place in this process and in an empty folder; undone afterwards."""
    undos = []
    for name in ("patch_tables", "patch_multi_kernel_row", "patch_remote_compile"):
        patch = getattr(inductor_metrics, name)
        monkeypatch.setattr(
            inductor_metrics, name, lambda *args, patch=patch: undos.append(patch(*args))
        )
    monkeypatch.chdir(tmp_path)
    tables = MetricTables(failures)
    with torch._inductor.config.patch(enabled_metric_tables=",".join(TABLES)):
        tables.install({})
        tables.install({})
        assert len(undos) == 3  # once
        yield tables
    for undo in undos:
        undo()


def test_no_failure_of_a_row_comes_through(
    patched: MetricTables, failures: Failures, tmp_path: Path
) -> None:
    from torch._inductor import metrics

    slow = metrics.get_metric_table("slow_fusion")
    slow.add_row(lambda: 1 / 0)
    slow.add_row(lambda: {"another": "column"})
    assert len(failures.notes) == 2
    assert "ZeroDivisionError" in failures.notes[0].text
    assert "kernel1_path" in failures.notes[1].text
    assert not list(tmp_path.iterdir())
    metrics.purge_old_log_files()  # Inductor's own function, our files
    assert (tmp_path / "metric_table_slow_fusion.csv").read_text().startswith("model_name,kernel1")


def test_rows_of_the_gpu_tables(patched: MetricTables, failures: Failures, tmp_path: Path) -> None:
    """Through Inductor's own code, with kernels that need no GPU: stand-ins of our making."""
    from torch._inductor import metrics
    from torch._inductor.codegen.multi_kernel import MultiKernelCall
    from torch._inductor.runtime.hints import ReductionHint

    class Kernel:
        def __init__(self, filename: str) -> None:
            self.filename = filename
            self.size_hints = {"x": 1024, "r0_": 512}
            self.inductor_meta = {"kernel_name": "k", "reduction_hint": ReductionHint.INNER}
            self.fn = None  # as a worker process leaves it

        def run(self, *args: Any, **kwargs: Any) -> None:
            pass

    call = MultiKernelCall.__new__(MultiKernelCall)
    call._kernels = [Kernel("/cache/a.py"), Kernel("/cache/b.py")]
    call.multi_kernel_name, call.picked_kernel = "multi_kernel_0", None
    call.disable_cache = call._recorded = True
    call.arg_index = {0: [slice(0, 0)], 1: [slice(0, 0)]}
    call.benchmark_sub_kernels = lambda *args, **kwargs: [0.25, 0.125]
    call.run()
    assert call.picked_kernel == 1
    assert table(tmp_path, "persistent_red_perf") == [
        {
            "kernel0_path": "/cache/a.py",
            "kernel1_path": "/cache/b.py",
            "kernel2_path": "",
            "kernel3_path": "",
            "kernel0_latency": "0.250000",
            "kernel1_latency": "0.125000",
            "kernel2_latency": "",
            "kernel3_latency": "",
            "size_hints": "{'x': 1024, 'r0_': 512}",
            "reduction_hint": "INNER",
        }
    ]
    metrics.log_kernel_autotune_result("/cache/a.py", "triton_red_0", {"XBLOCK": 1}, 0.5)
    assert [row["latency_ms"] for row in table(tmp_path, "kernel_autotune")] == ["0.500000"]
    assert failures.notes == []


def test_a_kernel_is_logged_once(
    patched: MetricTables, failures: Failures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its graph's code; from what codegen logged, where that code does not tell of it."""
    from torch._inductor import metrics

    graph = types.SimpleNamespace(source_code=kernel_data.modules()["plain/user_triton.graph1.py"])
    kernel = kernel_data.modules()["plain/reduction.kernel1.py"]
    path = str(tmp_path / "cache" / "ab" / "graph.py")
    facts = {"triton_poi_fused_sin_0": GeneratorFacts(total_bytes=8_000_000)}
    write_sidecar(path, Sidecar(facts))
    monkeypatch.setattr(inductor, "code_path", lambda graph: path)
    monkeypatch.setattr(inductor, "fx_graph_key", lambda graph: None)
    # Of a compilation that nobody observes: at once.
    metrics.log_kernel_metadata("alone", "/alone.py", kernel)
    patched.compilation_starts()
    for name in ("triton_poi_fused_sin_0", "hidden"):
        metrics.log_kernel_metadata(name, f"/{name}.py", kernel)
    metrics.log_kernel_metadata("broken", "/broken.py", "def f(")
    patched.code_loaded(graph)
    patched.compilation_ends()
    # As read in the file: the two modules' paths above their code; the user's kernel has none.
    rows = table(tmp_path, "kernel_metadata")
    assert [(row["kernel_name"], row["kernel_path"]) for row in rows] == [
        ("alone", "/alone.py"),
        (
            "triton_poi_fused_sin_0",
            "cache/nt/cntiu4xaog2clvd7neoccaglkgcya4idslqyqrfw2gaqdv5mjemp.py",
        ),
        ("add_kernel_0", path),
        (
            "triton_poi_fused_relu_1",
            "cache/kj/ckjqzzebwbnnr7shkp7eiu4kzvrkstrcvaplt5b64jedbsdknhwz.py",
        ),
        ("hidden", "/hidden.py"),
    ]
    # Inductor's own figure, from the file beside its cache; the code does not have it.
    assert [row["kernel_args_num_gb"] for row in rows] == ["", "0.008000", "", "", ""]
    (note,) = (note.text for note in failures.notes if "metadata" in note.text)
    assert note.startswith("lost: metadata of kernel broken: ParseError: not Python")
    # A warm graph: the same rows but for the one that its code does not have.
    patched.code_loaded(graph)
    assert table(tmp_path, "kernel_metadata") == rows + rows[1:4]


def test_compilations_on_several_threads_keep_apart(
    patched: MetricTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thread's rows go with the graph that it compiles."""
    from torch._inductor import metrics

    from instrumented_backend.observe.code import metric_tables

    kept: dict[str, Any] = {}
    # Not in the config, which from 2.13 each thread has its own of.
    monkeypatch.setattr(metrics, "enabled_metric_tables", lambda: {"graph_stats"})
    monkeypatch.setattr(metric_tables, "_side_file", lambda graph: graph)
    monkeypatch.setattr(
        metric_tables.side_files, "save", lambda path, data: kept.update({path: data})
    )
    barrier = threading.Barrier(2, timeout=600)

    def compile_one(number: int) -> None:
        patched.compilation_starts()
        barrier.wait()
        row = {"graph_id": number, "num_nodes_before_fusion": number, "num_nodes_after_fusion": 1}
        metrics.get_metric_table("graph_stats").add_row(lambda: row)
        barrier.wait()
        patched.code_loaded(f"graph{number}")
        patched.compilation_ends()

    threads = [threading.Thread(target=compile_one, args=(number,)) for number in (3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept == {"graph3": [[3, 1]], "graph4": [[4, 1]]}
