"""operatorbench.py on a GPU."""

import statistics
from pathlib import Path

import pytest
import torch
from opbench.input_log import parse_inputs
from opbench.operators import find_operator
from opbench.results import OK
from opbench.tensors import make_arguments
from running_operatorbench import run


def test_on_a_gpu(tmp_path: Path) -> None:
    done = run(tmp_path, "--device", "cuda", "--accuracy-checking", "--dtype", "float16")
    assert done.code == 1, done.err  # one sample of mm is wrong
    samples = done.data["samples"]
    assert [item["status"] for item in samples].count(OK) == len(samples) - 1
    add = next(item for item in samples if item["inputs"].startswith("((T([64, 32]"))
    assert add["kernels"][0]["language"] == "triton"
    assert add["total_bytes"] == 3 * 64 * 32 * 2
    assert done.data["machine"]["peak_gb_per_s"] > 100


def test_speedups_are_a_hand_written_scripts(tmp_path: Path) -> None:
    """Large enough that launching hides without CUDA graphs, so that do_bench alone will do."""
    from triton.testing import do_bench

    shape = "[256, 1024, 1024]"
    (tmp_path / "inputs.txt").write_text(
        "".join(
            f"Operator: aten.{name}\ncnt: 1, ((T({shape}, f16){more}), {{}})\n"
            for name, more in [
                ("_softmax.default", ", -1, False"),
                ("add.Tensor", f", T({shape}, f16)"),
                ("gelu.default", ","),
                ("mul.Tensor", ", 0.5"),
                ("neg.default", ","),
                ("pow.Tensor_Scalar", ", 3.0"),
                ("relu.default", ","),
                ("sigmoid.default", ","),
                ("sum.dim_IntList", ", [2], True"),
                ("tanh.default", ","),
            ]
        )
    )
    done = run(tmp_path, "--device", "cuda", "--dtype", "float16", "--repeats", "3")
    assert done.code == 0, done.out
    off = []
    for item in done.data["samples"]:
        op = find_operator(item["operator"])
        args, kwargs = make_arguments(op, parse_inputs(item["inputs"]), torch.float16, "cuda")
        compiled = torch.compile(lambda *a, op=op, kw=kwargs: op(*a, **kw), dynamic=False)
        functions = {
            "eager": lambda op=op, a=args, k=kwargs: op(*a, **k),
            "compiled": lambda c=compiled, a=args: c(*a),
        }
        times: dict[str, list[float]] = {name: [] for name in functions}
        for _ in range(5):  # in turns: the clock of a GPU wanders
            for name, function in functions.items():
                times[name].append(do_bench(function, warmup=5, rep=30, return_mode="median"))
        eager_ms, compiled_ms = (statistics.median(values) for values in times.values())
        speedup = item["backends"]["inductor"]["speedup"]
        if speedup != pytest.approx(eager_ms / compiled_ms, rel=0.05):
            off.append((item["operator"], speedup, eager_ms, compiled_ms))
        torch._dynamo.reset()
    assert len(done.data["samples"]) == 10 and off == []


def test_a_copy_is_timed_in_a_cuda_graph_and_outside(tmp_path: Path) -> None:
    """Eager's clone is a copy of the driver's in a CUDA graph, which may be slower than outside."""
    from triton.testing import do_bench

    (tmp_path / "inputs.txt").write_text(
        "Operator: aten.clone.default\ncnt: 1, ((T([256, 1024, 1024], f16),), {})\n"
    )
    done = run(tmp_path, "--device", "cuda", "--dtype", "float16", "--backends", "eager,inductor")
    assert done.code == 0, done.out
    (item,) = done.data["samples"]
    x = torch.randn(256, 1024, 1024, device="cuda", dtype=torch.float16)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = x.clone()
    within_us, outside_us = (
        1e3 * statistics.median(do_bench(function, return_mode="median") for _ in range(5))
        for function in (graph.replay, x.clone)
    )
    assert torch.equal(kept, x)
    eager = item["backends"]["eager"]
    assert eager["median_us"] == pytest.approx(within_us, rel=0.05)
    slower = outside_us < 0.95 * within_us
    print(f"{within_us:.1f} us in a graph, {outside_us:.1f} outside")  # -rP shows it
    assert (eager["outside_graph_us"] is not None) == slower
    if slower:
        assert eager["outside_graph_us"] == pytest.approx(outside_us, rel=0.05)
        assert "Slower in a CUDA graph than outside" in " ".join(done.out.split())
    assert item["backends"]["inductor"]["outside_graph_us"] is None
