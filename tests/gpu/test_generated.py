"""Generated code of programs on a GPU."""

import json
import re
from pathlib import Path

from gpt2_kernels import check_one_record_for_each_kernel
from programs import RunProgram


def test_triton_kernels_on_cuda(run_program: RunProgram, tmp_path: Path) -> None:
    """One record for each Triton kernel, its bytes Inductor's own, cold and warm."""
    cache = tmp_path / "cache"
    env = {"TORCHINDUCTOR_CACHE_DIR": str(cache)}
    program = """
        import torch
        x = torch.randn(512, 1000, device="cuda", requires_grad=True)
        w = torch.randn(1000, device="cuda")
        @torch.compile(backend="instrumented")
        def f(x, w):
            y = torch.nn.functional.layer_norm(x, (1000,), w).softmax(-1)
            return (y @ y.t()).relu().sum() + y[:, :10].cumsum(-1).mean()
        f(x, w).backward()
    """
    cold, warm = run_program(program, env=env, timeout=600), run_program(program, env=env)
    benchmark = run_program(
        program.replace("import torch", "import torch, torch._inductor.config as c", 1).replace(
            "@torch", "c.benchmark_kernel = True\n        @torch", 1
        ),
        env={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "other")},
        timeout=600,
    )
    theirs = {
        kernel["kernel_name"]: round(kernel["kernel_args_num_gb"] * 1e9)
        for kernel in benchmark.report["kernels"]
        if kernel["kernel_args_num_gb"] is not None
    }
    assert theirs
    for done in (cold, warm):
        kernels = [k for k in done.report["kernels"] if k["language"] == "triton"]
        defined = [
            name
            for path in {k["path"] for k in kernels}
            for name in re.findall(r"^(\w+) = async_compile\.triton", Path(path).read_text(), re.M)
        ]
        assert sorted(k["kernel_name"] for k in kernels) == sorted(defined)
        for kernel in kernels:
            assert kernel["bytes_source"] == "inductor", kernel
            assert kernel["total_bytes"] == theirs[kernel["kernel_name"]]
            assert kernel["source_lines"] and kernel["aten_ops"]
    # Of two files that are the same program.
    first, second = (
        re.sub(r"program\d+\.py", "program.py", json.dumps(done.report["kernels"]))
        for done in (cold, warm)
    )
    assert first == second


def test_gpt2_has_one_record_for_each_kernel(run_program: RunProgram, cold_cache: Path) -> None:
    check_one_record_for_each_kernel(run_program, cold_cache, "cuda", "triton")
