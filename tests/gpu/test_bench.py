"""The benchmark on a GPU, against torch.profiler, ``do_bench`` by hand, and a large copy."""

import json
import statistics
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from kernel_data import ARCHIVE

TOOL = (sys.executable, "-m", "instrumented_backend", "bench")

# The steps of a 2-layer GPT-2, with plain Inductor; then each kernel's median time in a trace.
TRAINING = """
import collections, json, statistics, sys
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
    for _ in range(20):
        step()
    torch.cuda.synchronize()
times = collections.defaultdict(list)
for event in profile.events():
    if event.device_type == torch.autograd.DeviceType.CUDA and event.name.startswith("triton_"):
        times[event.name].append(event.time_range.elapsed_us() / 1e3)
json.dump({name: ms for name, ms in times.items()}, open(sys.argv[1], "w"))
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
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[float]]]:
    """The cache that the training left, and each kernel's times in ms in a trace of it."""
    folder = tmp_path_factory.mktemp("gpt2")
    times = folder / "times.json"
    cache = folder / "cache"
    done = run(sys.executable, "-c", TRAINING, str(times), TORCHINDUCTOR_CACHE_DIR=str(cache))
    assert done.returncode == 0, done.stderr
    return cache, json.loads(times.read_text())


@pytest.fixture(scope="module")
def benched(gpt2: tuple[Path, dict[str, list[float]]]) -> dict[str, Any]:
    return bench(str(gpt2[0]))


def test_as_in_the_training_run(
    gpt2: tuple[Path, dict[str, list[float]]], benched: dict[str, Any]
) -> None:
    """Within 10 % of the trace; else by no more than the launch and the cache explain in a note."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in benched["kernels"]:
        by_name.setdefault(row["kernel_name"], []).append(row)
    (peak,) = benched["peaks"]
    assert peak["cache_bytes"] > 1 << 20 and 0.001 < peak["launch_ms"] < 0.02
    compared, off = 0, []
    for name, times in gpt2[1].items():
        rows = by_name[name]
        if len(rows) > 1 or rows[0]["total_bytes"] is None:
            continue  # of several shapes, or of two graphs: the trace does not tell them apart
        (row,) = rows
        trace_ms = statistics.median(times)
        explained_ms = 0.0
        if any("timed with cold caches" in note for note in row["notes"]):
            held = min(row["total_bytes"], peak["cache_bytes"])
            explained_ms = peak["launch_ms"] + held / peak["copy_gb_per_s"] / 1e6
        elif row["total_bytes"] > peak["cache_bytes"]:
            compared += 1
        print(name, row["total_bytes"], row["ms"], trace_ms, explained_ms)  # -rP shows it
        if not 0.9 * trace_ms <= row["ms"] <= 1.1 * trace_ms + explained_ms:
            off.append(name)
    assert compared >= 2 and not off


def test_every_kernel_has_its_figures(benched: dict[str, Any]) -> None:
    for row in benched["kernels"]:
        if row["calls"] == 0:
            continue
        assert row["error"] is None and row["ms"] > 0, row["kernel_name"]
        if row["language"] == "triton":
            assert row["n_regs"] > 0 and row["n_spills"] >= 0 and row["shared_bytes"] >= 0
            assert "num_warps" in row["config"]
        if row["copy_pct"] is not None and row["copy_pct"] > 105:
            assert any("faster than" in note for note in row["notes"])


# The same training; then ``do_bench`` of every launch of a step, with the step's own tensors.
EACH_BY_HAND = (
    TRAINING.partition("for _ in range(3):")[0]
    + """
step()
import threading
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from torch._inductor.select_algorithm import extern_kernels
from triton.testing import do_bench

launches = {}

def like(x):
    return (x.shape, x.stride(), x.dtype) if isinstance(x, torch.Tensor) else x

def watch(owner, attribute, name_of, first=0):
    original = getattr(owner, attribute)
    def watched(*args, **kwargs):
        graph = threading.get_ident()  # the backward has a thread of its own
        key = name_of(args), graph, str([like(x) for x in (*args[first:], *kwargs.values())])
        launches.setdefault(key, lambda: original(*args, **kwargs))
        return original(*args, **kwargs)
    setattr(owner, attribute, watched)
    return lambda: setattr(owner, attribute, original)

undo = [watch(CachingAutotuner, "run", lambda args: args[0].fn.__name__, 1)]
for name in ("mm", "addmm", "bmm"):
    undo.append(watch(extern_kernels, name, lambda args, name=name: "extern_kernels." + name))
step()
for restore in undo:
    restore()
times = collections.defaultdict(list)
with torch.no_grad():
    for (name, *_), launch in launches.items():
        found = [do_bench(launch, return_mode="median")]
        while len(found) < (8 if found[0] < 0.02 else 2):
            found.append(do_bench(launch, return_mode="median"))
        times[name].append(found)
json.dump(times, open(sys.argv[1], "w"))
"""
)


def test_every_kernel_is_do_benchs(
    gpt2: tuple[Path, dict[str, list[float]]], benched: dict[str, Any], tmp_path: Path
) -> None:
    """Within 5 % of ``triton.testing.do_bench`` by hand, in processes without us.

    Of a few microseconds, ``do_bench`` itself gives times up to 25 % apart, from call to call
    and from process to process: such a kernel is within 5 % of the range of sixteen of them.
    """
    out = tmp_path / "times.json"
    by_hand: dict[str, list[list[float]]] = {}
    for _ in range(2):
        done = run(
            sys.executable, "-c", EACH_BY_HAND, str(out), TORCHINDUCTOR_CACHE_DIR=str(gpt2[0])
        )
        assert done.returncode == 0, done.stderr
        for name, launches in json.loads(out.read_text()).items():
            known = by_hand.setdefault(name, [[] for _ in launches])
            for times, more in zip(known, sorted(launches), strict=True):
                times += more
    assert gpt2[1].keys() <= by_hand.keys(), "every kernel of the trace"
    off = []
    for name, launches in by_hand.items():
        rows = sorted(row["ms"] for row in benched["kernels"] if row["kernel_name"] == name)
        assert len(rows) == len(launches), name
        for ms, times in zip(rows, launches, strict=True):
            middle = statistics.median(times)
            low, high = (middle, middle) if middle > 0.02 else (min(times), max(times))
            print(name, f"{ms:.4f}", [f"{time:.4f}" for time in times])  # -rP shows it
            if not 0.95 * low <= ms <= 1.05 * high:
                off.append((name, ms, times))
    assert not off


# One large kernel: 2 x 268 MB read, 268 MB written.
POINTWISE = """
import torch
x, y = (torch.randn(1 << 26, device="cuda") for _ in range(2))
torch.compile(lambda x, y: x * 2 + y, backend="inductor")(x, y)
"""

BY_HAND = """
import json, sys
import torch
from triton.testing import do_bench
x, y = (torch.randn(1 << 26, device="cuda") for _ in range(2))
compiled = torch.compile(lambda x, y: x * 2 + y, backend="inductor")
compiled(x, y)
from torch._inductor.codecache import PyCodeCache
(module,) = [module for module in PyCodeCache.modules if hasattr(module, "call")]
(kernel,) = [value for value in vars(module).values() if hasattr(value, "launchers")]
out = torch.empty_like(x)
stream = torch.cuda.current_stream().cuda_stream
run = lambda: kernel.run(x, y, out, x.numel(), stream=stream)
print(json.dumps(do_bench(run, return_mode="median")))
"""


@pytest.fixture(scope="module")
def pointwise(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The cache that compiling it left."""
    cache = str(tmp_path_factory.mktemp("pointwise"))
    run(sys.executable, "-c", POINTWISE, TORCHINDUCTOR_CACHE_DIR=cache).check_returncode()
    return cache


def test_a_large_pointwise_kernel(pointwise: str) -> None:
    """At least 90 % of a copy's bandwidth, and within 5 % of ``do_bench`` called by hand."""
    done = run(*TOOL, pointwise, "--profile", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (row,) = document["kernels"]
    assert row["error"] is None
    assert row["total_bytes"] == 3 * 4 << 26
    assert 90 <= row["copy_pct"] <= 105, row
    by_hand = run(sys.executable, "-c", BY_HAND, TORCHINDUCTOR_CACHE_DIR=pointwise)
    assert by_hand.returncode == 0, by_hand.stderr
    assert row["ms"] == pytest.approx(json.loads(by_hand.stdout.splitlines()[-1]), rel=0.05)
    (graph,) = document["graphs"]
    assert "== triton_pointwise category kernels ==" in graph["profile"]
    (busy,) = [
        line for line in graph["profile"].splitlines() if line.startswith("Percent of time when")
    ]
    assert "when CUDA is busy: " in busy
    assert 50 < float(busy.split(": ")[1].split("%")[0]) <= 100


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
