"""The command ``bench`` on a GPU: every kernel has its figures."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from kernel_data import ARCHIVE

TOOL = (sys.executable, "-m", "instrumented_backend", "bench")

# A step of a 2-layer GPT-2, with plain Inductor; then the kernels that a step launches.
TRAINING = """
import json, sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(n_layer=2, use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
model = GPT2LMHeadModel(config).cuda().train()
ids = torch.randint(0, 50257, (8, 1024), device="cuda")
compiled = torch.compile(model, backend="inductor")

def step():
    compiled(input_ids=ids, labels=ids).loss.backward()

for _ in range(3):
    step()
torch.cuda.synchronize()
with torch.profiler.profile() as profile:
    step()
    torch.cuda.synchronize()
on_gpu = torch.autograd.DeviceType.CUDA
names = {event.name for event in profile.events() if event.device_type == on_gpu}
json.dump([name for name in names if name.startswith("triton_")], open(sys.argv[1], "w"))
"""


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        command, capture_output=True, text=True, timeout=1200, env={**os.environ, **environment}
    )


def bench(*arguments: str) -> dict[str, Any]:
    done = run(*TOOL, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The cache that the training left, and the names of the Triton kernels in a trace of it."""
    folder = tmp_path_factory.mktemp("gpt2")
    names = folder / "names.json"
    cache = folder / "cache"
    done = run(sys.executable, "-c", TRAINING, str(names), TORCHINDUCTOR_CACHE_DIR=str(cache))
    assert done.returncode == 0, done.stderr
    return cache, json.loads(names.read_text())


@pytest.fixture(scope="module")
def benched(gpt2: tuple[Path, list[str]]) -> dict[str, Any]:
    return bench(str(gpt2[0]))


def test_every_kernel_has_its_figures(
    gpt2: tuple[Path, list[str]], benched: dict[str, Any]
) -> None:
    assert gpt2[1] and set(gpt2[1]) <= {row["kernel_name"] for row in benched["kernels"]}
    (peak,) = benched["peaks"]
    assert peak["cache_bytes"] > 1 << 20 and peak["launch_ms"] > 0
    for row in benched["kernels"]:
        if row["calls"] == 0:
            continue
        assert row["error"] is None and row["ms"] > 0, row["kernel_name"]
        assert row["timed"] == "in graph" and row["warm_ms"] > 0 and row["cold_ms"] > 0, row
        if row["language"] == "triton":
            assert row["n_regs"] > 0 and row["n_spills"] >= 0 and row["shared_bytes"] >= 0
            assert "num_warps" in row["config"]
        if row["copy_pct"] is not None and row["copy_pct"] > 105:
            assert any("faster than" in note for note in row["notes"])


# One large kernel: 2 x 268 MB read, 268 MB written.
POINTWISE = """
import torch
x, y = (torch.randn(1 << 26, device="cuda") for _ in range(2))
torch.compile(lambda x, y: x * 2 + y, backend="inductor")(x, y)
"""


@pytest.fixture(scope="module")
def pointwise(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The cache that compiling it left."""
    cache = str(tmp_path_factory.mktemp("pointwise"))
    run(sys.executable, "-c", POINTWISE, TORCHINDUCTOR_CACHE_DIR=cache).check_returncode()
    return cache


def test_a_large_pointwise_kernel(pointwise: str) -> None:
    done = run(*TOOL, pointwise, "--profile", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (row,) = document["kernels"]
    assert row["error"] is None
    assert row["total_bytes"] == 3 * 4 << 26
    assert row["gb_per_s"] == pytest.approx(row["total_bytes"] / row["ms"] / 1e6)
    assert row["copy_pct"] > 0
    (graph,) = document["graphs"]
    assert "== triton_pointwise category kernels ==" in graph["profile"]
    (busy,) = [
        line for line in graph["profile"].splitlines() if line.startswith("Percent of time when")
    ]
    assert "when CUDA is busy: " in busy
    assert 0 < float(busy.split(": ")[1].split("%")[0]) <= 100


def test_all_configs(pointwise: str) -> None:
    """Inductor tries two for a pointwise kernel in one dimension; one of them is the chosen one."""
    rows = bench(pointwise, "--all-configs")["kernels"]
    assert {row["kernel_name"] for row in rows} == {rows[0]["kernel_name"]}
    assert all(row["error"] is None and row["ms"] > 0 for row in rows), rows
    assert sum(row["chosen"] for row in rows) == 1
    assert len({row["config"] for row in rows}) == len(rows) > 1


def test_recorded_modules(tmp_path: Path) -> None:
    """Made with torch 2.11 on an H100: each graph's kernels have a time or a reason."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    document = bench(str(tmp_path / "plain"))
    assert all(row["ms"] or row["error"] for row in document["kernels"])
    for row in document["kernels"]:
        if row["path"] is not None and row["calls"]:
            assert row["error"] is None, (row["kernel_name"], row["error"])
