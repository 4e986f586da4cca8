"""``torch._inductor.wrapper_benchmark``'s names: categories, kernels, reports of made-up events."""

import inspect
import types
from typing import Any

import pytest
import torch._inductor.wrapper_benchmark as theirs
from kernel_data import named
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from torch.autograd import DeviceType

import instrumented_backend
from instrumented_backend import wrapper_benchmark


def test_exported_names_and_pytorchs_parameters() -> None:
    for name in wrapper_benchmark.__all__:
        ours = getattr(instrumented_backend, name)
        assert ours is getattr(wrapper_benchmark, name) and name in instrumented_backend.__all__
        parameters = list(inspect.signature(ours).parameters)
        assert parameters == list(inspect.signature(getattr(theirs, name)).parameters)


# --- Kernels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "category"),
    [
        ("pointwise.kernel1", "pointwise"),
        ("reduction.kernel1", "reduction"),
        ("persistent.kernel1", "persistent_reduction"),
        ("foreach.kernel1", "foreach"),
        ("scan.kernel1", "split_scan"),
        ("template.kernel1", "template"),
    ],
)
def test_category_by_source(kernel: str, category: str) -> None:
    source = named("plain", "kernel")[f"plain/{kernel}.py"]
    assert wrapper_benchmark.get_kernel_category_by_source_code(source) == category


def test_category_of_several_or_none() -> None:
    by_source = wrapper_benchmark.get_kernel_category_by_source_code
    assert by_source("x = 1") == "unknown"
    one, other = "@triton_heuristics.pointwise(\n", "@triton_heuristics.reduction(\n"
    assert by_source(one + one) == "pointwise" and by_source(one + other) == "unknown"
    assert by_source("@pointwise(\n") == "pointwise"
    assert by_source("@triton_heuristics.cooperative_reduction(\n") == "cooperative_reduction"


def test_category_of_a_module(tmp_path: Any) -> None:
    module = types.ModuleType("kernel")
    module.pointwise = object()  # type: ignore[attr-defined]  # imported by name, as it once was
    assert wrapper_benchmark.get_kernel_category(module) == "pointwise"
    path = tmp_path / "kernel.py"
    path.write_text(named("plain", "kernel")["plain/reduction.kernel1.py"])
    module.__file__ = str(path)
    assert wrapper_benchmark.get_kernel_category(module) == "reduction"
    del module.__file__, module.pointwise  # type: ignore[attr-defined]
    assert wrapper_benchmark.get_kernel_category(module) == "unknown"


def test_the_kernel_of_a_module() -> None:
    first, second = (CachingAutotuner.__new__(CachingAutotuner) for _ in range(2))
    module = types.ModuleType("kernel")
    with pytest.raises(ValueError, match="kernel: has to have one Triton kernel, has none"):
        wrapper_benchmark.get_triton_kernel(module)
    vars(module).update(triton_poi_0=first, alias=first, other=3)
    assert wrapper_benchmark.get_triton_kernel(module) is first
    module.add_kernel_0 = second  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="has triton_poi_0, add_kernel_0"):
        wrapper_benchmark.get_triton_kernel(module)
    exec("def call(args):\n    add_kernel_0.run(*args)", vars(module))
    assert wrapper_benchmark.get_triton_kernel(module) is second


# --- Profiles -----------------------------------------------------------------------------------


def event(key: str, us: float, start: float | None = None, **kwargs: Any) -> Any:
    """As torch's profiler has it; with a start it is one event, else an average."""
    fields: dict[str, Any] = {
        "key": key,
        "self_device_time_total": us,
        "self_cpu_time_total": us,
        "count": 1,
        "device_type": DeviceType.CUDA,
        "is_legacy": False,
        "is_user_annotation": False,
    }
    if start is not None:
        fields["time_range"] = types.SimpleNamespace(start=start, end=start + us)
    return types.SimpleNamespace(**{**fields, **kwargs})


def report(capsys: pytest.CaptureFixture[str], *args: Any) -> list[str]:
    instrumented_backend.parse_profile_event_list(*args)
    return capsys.readouterr().out.splitlines()


def test_categories_and_shares(capsys: pytest.CaptureFixture[str]) -> None:
    events = [
        # Two runs, each of 1 ms. A kernel twice in each; two streams overlap by 100 µs.
        *(event("triton_poi_fused_0", 100.0, start) for start in (0, 200, 1000, 1200)),
        *(event("triton_red_fused_1", 200.0, start) for start in (400, 1400)),
        *(event("triton_per_fused_2", 200.0, start) for start in (500, 1500)),
        event("triton_tem_fused_mm_3", 40.0, 900),
        event("nvjet_tst", 60.0, 1900),
        event("## Call CompiledFxGraph ##", 2000.0, 0, is_user_annotation=True),
        event("aten::mm", 500.0, 0, device_type=DeviceType.CPU),
        event("Activity Buffer Request", 950.0, 0),  # CUPTI's own
    ]
    lines = report(capsys, "gpt2", events, 1.0, 2, "cuda")
    # Per run: pointwise 0.2 ms in 2 calls; red and per 0.2 ms each; template 0.02; gemm 0.03.
    headings = [line.strip() for line in lines if "==" in line]
    assert headings == [
        "== triton_pointwise category kernels ==",
        "== triton_reduction category kernels ==",
        "== triton_persistent_reduction category kernels ==",
        "== triton_unknown category kernels ==",
        "== unknown category kernels ==",
    ]
    assert "Self CUDA TIME (ms)" in lines[2]
    rows = [line.split() for line in lines]
    assert ["triton_poi_fused_0", "0.2", "2", "20.00%"] in rows
    assert ["nvjet_tst", "0.03", "0.5", "3.00%"] in rows
    # Busy in 2 ms: 4*100 + 2*300 (400..700) + 40 + 60 = 1100 µs; the sum would be 1300.
    assert "Percent of time when CUDA is busy: 55.00%" in lines
    assert "Total wall time 1.000 ms" in lines
    assert lines[-1] == (
        "Output for tabulate: gpt2, 20.00%, 20.00%, 20.00%, 2.00%, 3.00%, 55.00%, 1.000ms"
    )


def test_busy_never_passes_the_wall_time(capsys: pytest.CaptureFixture[str]) -> None:
    both = [event("a", 1000.0, 0), event("b", 1000.0, 0)]
    assert any("is busy: 100.00%" in line for line in report(capsys, "x", both, 1.0, 1, "cuda"))
    averages = [event("a", 1000.0), event("b", 1000.0)]
    lines = report(capsys, "x", averages, 1.0, 1, "cuda")
    assert any("is busy: 100.00% (at most: averages" in line for line in lines)
    assert lines[-1].endswith("200.00%, 100.00%, 1.000ms")  # the sum is a sum


@pytest.mark.parametrize("device", ["", "cpu"])
def test_a_profile_of_a_cpu(capsys: pytest.CaptureFixture[str], device: str) -> None:
    events = [
        event("cpp_fused_add_0", 250.0, 0, device_type=DeviceType.CPU, is_user_annotation=True)
    ]
    lines = report(capsys, "x", events, 1.0, 1, device)
    assert any("Self CPU TIME (ms)" in line for line in lines)
    assert "Percent of time when CPU is busy: 25.00%" in lines


def test_nothing_in_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    lines = report(capsys, "x", [], 0.0, 1, "cuda")
    assert lines[-1].startswith("Output for tabulate: x, 0.00%, 0.00%")


def test_the_legacy_profiler_is_refused() -> None:
    with pytest.raises(ValueError, match="legacy profiler"):
        instrumented_backend.parse_profile_event_list(
            "x", [event("a", 1.0, is_legacy=True)], 1.0, 1, "cuda"
        )
