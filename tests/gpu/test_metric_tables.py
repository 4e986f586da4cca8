"""The tables that only a GPU fills, against what Inductor's own code measured in the same run."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from programs import RunProgram

VARIABLE = "TORCHINDUCTOR_ENABLED_METRIC_TABLES"
ALL = (
    "slow_fusion,graph_stats,persistent_red_perf,"
    "fusion_failure_due_to_indexing_mismatch,kernel_metadata,kernel_autotune"
)


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with open(folder / f"metric_table_{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def sixth(value: float) -> str:
    return f"{value:.6f}"


# The scheduler's timings are 1, 100 and 10,000 ms, whatever it measures: the fused kernel, timed
# last, always seems the slower way.
SLOW_FUSION = """
import json
import torch
from torch._inductor.scheduler import Scheduler

measured, fused = [], []
benchmark = Scheduler.benchmark_codegened_module

def observed(self, module, *args, **kwargs):
    _, path = benchmark(self, module, *args, **kwargs)
    measured.append([100.0 ** (len(measured) % 3), path])
    return tuple(measured[-1])

Scheduler.benchmark_codegened_module = observed

def f(x, y):
    return (x + y).relu(), (x * y).sum(1), (x - y).abs()

x, y = (torch.full((512, 512), float(value), device="cuda") for value in (2, 3))
one, two, three = torch.compile(f, backend="instrumented")(x, y)
assert (one == 5).all() and (two == 6 * 512).all() and (three == 1).all()
print(json.dumps(measured))
"""


def test_slow_fusion(run_program: RunProgram, tmp_path: Path) -> None:
    done = run_program(
        SLOW_FUSION,
        env={
            VARIABLE: "slow_fusion",
            "TORCHINDUCTOR_BENCHMARK_FUSION": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
        },
    )
    measured = json.loads(done.stdout)
    assert measured and len(measured) % 3 == 0
    expected: dict[tuple[str, str], dict[str, str]] = {}
    for (ms1, path1), (ms2, path2), (fused_ms, fused_path) in zip(
        measured[::3], measured[1::3], measured[2::3], strict=True
    ):
        if fused_ms >= ms1 + ms2:
            # A pair is logged once, however often the scheduler comes back to it.
            row = {
                "model_name": "",
                "kernel1_path": path1,
                "kernel1_latency": sixth(ms1),
                "kernel2_path": path2,
                "kernel2_latency": sixth(ms2),
                "fused_kernel_path": fused_path,
                "fused_kernel_latency": sixth(fused_ms),
                "slow_down_ratio": sixth(fused_ms / (ms1 + ms2)),
            }
            expected.setdefault((path1, path2), row)
    assert expected
    assert table(tmp_path / "reports0", "slow_fusion") == list(expected.values())


PERSISTENT = """
import json
import torch
from torch._inductor.codegen.multi_kernel import MultiKernelCall

measured = []
benchmark = MultiKernelCall.benchmark_sub_kernels

def observed(self, *args, **kwargs):
    timings = benchmark(self, *args, **kwargs)
    kernels = [
        [kernel.filename, kernel.inductor_meta["kernel_name"], ms]
        for kernel, ms in zip(self.kernels, timings)
    ]
    measured.append([kernels, str(self.kernels[0].size_hints)])
    return timings

MultiKernelCall.benchmark_sub_kernels = observed

f = torch.compile(lambda x: torch.softmax(x, -1) + 1, backend="instrumented")
out = f(torch.zeros(1024, 512, device="cuda"))
torch.testing.assert_close(out, torch.full_like(out, 1 + 1 / 512))
print(json.dumps(measured))
"""


@pytest.mark.parametrize("threads", [1, 4])  # 4: worker processes compile the kernels
def test_persistent_red_perf(run_program: RunProgram, tmp_path: Path, threads: int) -> None:
    done = run_program(
        PERSISTENT,
        env={
            VARIABLE: "persistent_red_perf",
            "TORCHINDUCTOR_MULTI_KERNEL": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": str(threads),
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
        },
    )
    measured = json.loads(done.stdout)
    assert measured
    rows = table(tmp_path / "reports0", "persistent_red_perf")
    for row, (kernels, size_hints) in zip(rows, measured, strict=True):
        assert len(kernels) >= 2
        for number in range(4):
            path, name, ms = kernels[number] if number < len(kernels) else ("", "", None)
            assert row[f"kernel{number}_path"] == path
            assert row[f"kernel{number}_latency"] == ("" if ms is None else sixth(ms))
            if path:
                assert f"def {name}(" in Path(path).read_text()
        assert row["size_hints"] == size_hints and row["reduction_hint"] == "INNER"


AUTOTUNE = """
import json
import torch
from torch._inductor.runtime.triton_heuristics import CachingAutotuner

measured = []
benchmark = CachingAutotuner.benchmark_all_configs

def observed(self, *args, **kwargs):
    timings = benchmark(self, *args, **kwargs)
    for launcher, ms in timings.items():
        measured.append([self.filename, self.fn.__name__, str(launcher.config), ms])
    return timings

CachingAutotuner.benchmark_all_configs = observed

f = torch.compile(lambda x: (x + x.t()).relu().sum(1), backend="instrumented")
assert (f(torch.ones(1024, 1024, device="cuda")) == 2048).all()
print(json.dumps(measured))
"""


def test_kernel_autotune(run_program: RunProgram, tmp_path: Path) -> None:
    done = run_program(
        AUTOTUNE,
        env={
            VARIABLE: "kernel_autotune",
            "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
        },
    )
    measured = json.loads(done.stdout)
    assert len(measured) > 1
    assert [
        [row["kernel_path"], row["kernel_name"], row["triton_config"], row["latency_ms"]]
        for row in table(tmp_path / "reports0", "kernel_autotune")
    ] == [[path, name, config, sixth(ms)] for path, name, config, ms in measured]


# Every table at once, with what the scheduler decided and the modules that codegen wrote.
EVERYTHING = """
import json
import torch
from torch._inductor.scheduler import Scheduler
from torch._inductor.codegen.triton import TritonScheduling

graphs, kernels = [], []
init, define = Scheduler.__init__, TritonScheduling.define_kernel

def observed_init(self, *args):
    init(self, *args)
    graphs.append([self.num_orig_nodes, len(self.nodes)])

def observed_define(self, code, nodes, kernel):
    name = define(self, code, nodes, kernel)
    row = [name, f"{kernel.estimate_kernel_num_bytes() / 1e9:.6f}"]
    if row not in kernels:  # of the same code there is one kernel, called twice
        kernels.append(row)
    return name

Scheduler.__init__, TritonScheduling.define_kernel = observed_init, observed_define

net = torch.nn.Sequential(
    torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Linear(256, 64)
).cuda()
torch.compile(net, backend="instrumented")(torch.ones(32, 64, device="cuda")).sum().backward()
print(json.dumps({"graphs": graphs, "kernels": sorted(kernels)}))
"""


def test_every_table_cold_and_warm(run_program: RunProgram, tmp_path: Path) -> None:
    env: dict[str, Any] = {
        VARIABLE: ALL,
        "TORCHINDUCTOR_BENCHMARK_FUSION": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = [run_program(EVERYTHING, env=env) for _ in ("cold", "warm")]
    truth, warm = (json.loads(run.stdout) for run in done)
    assert len(truth["graphs"]) == 2 and truth["kernels"]
    assert warm == {"graphs": [], "kernels": []}
    for number, run in enumerate(done):
        folder = tmp_path / f"reports{number}"
        assert not [note for note in run.report["notes"] if "metric" in note]
        stats = table(folder, "graph_stats")
        assert [row["graph_id"] for row in stats] == ["0", "1"]
        assert sorted(
            [int(row["num_nodes_before_fusion"]), int(row["num_nodes_after_fusion"])]
            for row in stats
        ) == sorted(truth["graphs"])
        rows = table(folder, "kernel_metadata")
        generated = [row for row in rows if row["kernel_name"].startswith("triton_")]
        assert (
            sorted([row["kernel_name"], row["kernel_args_num_gb"]] for row in generated)
            == truth["kernels"]
        )
        for row in generated:
            module = Path(row["kernel_path"]).read_text()
            assert int(row["num_args"]) >= 2 and int(row["num_store"]) >= 1
            assert row["size_hints"] in module
            if row["xnumel"]:
                assert f"xnumel = {row['xnumel']}" in module
