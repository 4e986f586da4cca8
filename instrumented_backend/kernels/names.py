"""The kernels that a generated module defines, by name."""

import ast
from dataclasses import dataclass

_LANGUAGES = {
    "triton": "triton",
    "cpp": "cpp",
    "cpp_pybinding": "cpp",
    "cutlass": "cutlass",
    "cuda": "cutlass",
    "halide": "halide",
    "multi_kernel": "triton",
    "metal": "metal",
}


@dataclass(frozen=True)
class KernelName:
    name: str
    language: str  # "triton", "cpp", ... or "unknown"


def kernel_names(source: str) -> list[KernelName]:
    """The kernels of a generated graph module, in the order of their definition.

    Inductor defines each one at module level as ``name = async_compile.<language>(...)``, before
    the line that waits for them all; what follows that line (the long part) is not read. Raises
    SyntaxError where the source is not Python.
    """
    definitions = source.partition("\nasync_compile.wait(globals())")[0]
    kernels = []
    for statement in ast.parse(definitions).body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            continue
        target, function = statement.targets[0], statement.value.func
        if (
            isinstance(target, ast.Name)
            and isinstance(function, ast.Attribute)
            and isinstance(function.value, ast.Name)
            and function.value.id == "async_compile"
        ):
            kernels.append(KernelName(target.id, _LANGUAGES.get(function.attr, "unknown")))
    return kernels
