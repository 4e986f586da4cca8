"""The generated code in ``data/kernels.tar.xz``, and modules made for a test."""

import functools
import tarfile
import textwrap

from paths import DATA

from instrumented_backend.kernels.parse import parse_module
from instrumented_backend.records import KernelRecord

ARCHIVE = DATA / "kernels.tar.xz"
IMPORTS = "import triton\nimport triton.language as tl\n\n"


@functools.cache
def modules() -> dict[str, str]:
    """``{"plain/adam.graph1.py": text, ...}``."""
    found = {}
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            found[member.name] = file.read().decode()
    return found


def named(folder: str, kind: str = "") -> dict[str, str]:
    return {
        name: text
        for name, text in modules().items()
        if name.startswith(f"{folder}/") and f".{kind}" in name
    }


def kernel_module(
    body: str, decorator: str = "pointwise", arguments: str = "in_ptr0, out_ptr0"
) -> str:
    """A Triton kernel's own module, as Inductor lays it out."""
    return (
        f"{IMPORTS}@triton_heuristics.{decorator}(\n"
        "    size_hints={'x': 1024}, filename=__file__,\n"
        "    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*bf16', "
        "'xnumel': 'i32'}},\n"
        "    inductor_meta={'grid_type': 'Grid1D'},\n)\n"
        f"@triton.jit\ndef triton_poi_fused_0({arguments}, xnumel, XBLOCK : tl.constexpr):\n"
        f"{textwrap.indent(textwrap.dedent(body), '    ')}"
    )


def graph_module(definitions: str, call: str = "return args") -> str:
    """A graph's module with its kernels' definitions and the body of its ``call``."""
    return (
        "async_compile = AsyncCompile()\n"
        f"{definitions}\n"
        "async_compile.wait(globals())\ndel async_compile\n\n"
        f"def call(args):\n{textwrap.indent(textwrap.dedent(call), '    ')}\n"
    )


def only(text: str) -> KernelRecord:
    """Of the one kernel in a module."""
    (record,) = parse_module(text)
    return record
