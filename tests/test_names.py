"""Kernel names out of real generated code, and the package's public names."""

from pathlib import Path

import pytest

import instrumented_backend
from instrumented_backend.kernels.names import KernelName, kernel_names

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("adam.graph1.py", ["triton_for_fused_0", "triton_for_fused_1"]),
        ("combo.graph1.py", ["triton_poi_fused_0", "triton_per_fused_1"]),
        ("template.graph1.py", ["triton_tem_fused_mm_0", "triton_poi_fused_add_relu_1"]),
        (
            "user_triton.graph1.py",
            ["triton_poi_fused_sin_0", "add_kernel_0", "triton_poi_fused_relu_1"],
        ),
    ],
)
def test_triton(file: str, names: list[str]) -> None:
    found = kernel_names((DATA / file).read_text())
    assert found == [KernelName(name, "triton") for name in names]


def test_cpp_and_unknown_languages() -> None:
    source = (
        "async_compile = AsyncCompile()\n"
        "cpp_fused_add_0 = async_compile.cpp_pybinding(['float*'], '''async_compile.cpp''')\n"
        "new_0 = async_compile.some_new_language('x')\n"
        "async_compile.wait(globals())\n"
        "def call(args): this is not even Python\n"
    )
    assert kernel_names(source) == [
        KernelName("cpp_fused_add_0", "cpp"),
        KernelName("new_0", "unknown"),
    ]


def test_no_kernels() -> None:
    assert kernel_names("def call(args):\n    return args\n") == []
    with pytest.raises(SyntaxError):
        kernel_names("not Python at all")


def test_public_names() -> None:
    for name in instrumented_backend.__all__:
        assert getattr(instrumented_backend, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = instrumented_backend.nonsense
    report = instrumented_backend.report()
    assert report.schema_version == 1
