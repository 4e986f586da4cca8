"""operatorbench.py on a GPU."""

from pathlib import Path

from opbench.results import OK
from running_operatorbench import run


def test_on_a_gpu(tmp_path: Path) -> None:
    done = run(tmp_path, "--device", "cuda", "--accuracy-checking", "--dtype", "float16")
    assert done.code == 1, done.err  # one sample of mm is wrong
    samples = done.data["samples"]
    assert [item["status"] for item in samples].count(OK) == len(samples) - 1
    add = next(item for item in samples if item["inputs"].startswith("((T([64, 32]"))
    assert add["kernels"][0]["language"] == "triton"
    assert add["total_bytes"] == 3 * 64 * 32 * 2
    assert done.data["machine"]["peak_gb_per_s"] > 0


def test_a_copy_is_timed_in_a_cuda_graph_and_outside(tmp_path: Path) -> None:
    """Eager's clone is a copy of the driver's in a CUDA graph, which may be slower than outside."""
    (tmp_path / "inputs.txt").write_text(
        "Operator: aten.clone.default\ncnt: 1, ((T([256, 1024, 1024], f16),), {})\n"
    )
    done = run(tmp_path, "--device", "cuda", "--dtype", "float16", "--backends", "eager,inductor")
    assert done.code == 0, done.out
    (item,) = done.data["samples"]
    eager = item["backends"]["eager"]
    outside_us = eager["outside_graph_us"]
    assert outside_us is None or outside_us < 0.95 * eager["median_us"]
    said = "Slower in a CUDA graph than outside" in " ".join(done.out.split())
    assert said == any(timing["outside_graph_us"] for timing in item["backends"].values())
