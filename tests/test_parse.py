"""Records of generated code, against what the code says to simpler readers and to Inductor."""

import ast
import dataclasses
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from kernel_data import modules, named

from instrumented_backend.kernels import triton
from instrumented_backend.kernels.parse import (
    KernelName,
    ParseError,
    kernel_names,
    parse_module,
)
from instrumented_backend.records import KernelRecord

TRITON_MODULES = {**named("plain"), **named("bk")}
OWN_MODULES = {**named("plain", "kernel"), **named("bk", "kernel")}
GRAPHS = {**named("plain", "graph"), **named("bk", "graph")}
# What Inductor calls a kernel, after its decorator.
PREFIXES = {
    "triton_poi": {"pointwise", "combo"},
    "triton_per": {"persistent_reduction"},
    "triton_red": {"reduction"},
    "triton_for": {"foreach"},
    "triton_tem": {"template"},
    "triton_mm": {"template"},
    "triton_spl": {"split_scan"},
    "add_kernel": {"user_autotune"},
    "triton_": {"pointwise", "template"},  # a candidate in tuning, which has no name yet
}


def only(text: str) -> KernelRecord:
    (record,) = parse_module(text)
    return record


@pytest.mark.parametrize("name", TRITON_MODULES)
def test_every_module_parses(name: str) -> None:
    kernels = parse_module(TRITON_MODULES[name], name)
    assert kernels
    for kernel in kernels:
        if kernel.language == "extern":
            continue
        assert kernel.kernel_category != "unknown"
        prefix = next(p for p in PREFIXES if kernel.kernel_name.startswith(p))
        assert kernel.kernel_category in PREFIXES[prefix]
        assert (kernel.device, kernel.compute_capability) == ("cuda:0", "9.0")
        assert kernel.grid_type
        assert set(kernel.arg_dtypes.values()) <= {
            *("float32", "bfloat16", "int64", "int32", "uint8", "int8", "bool"),
        }


@pytest.mark.parametrize("name", OWN_MODULES)
def test_counts_are_those_of_pytorch(name: str) -> None:
    """PyTorch's table counts the words in the kernel's text (``torch/_inductor/metrics.py``)."""
    text = OWN_MODULES[name]
    kernel = only(text)
    head = re.search(rf"^def {re.escape(_function(text))}\((.*)\):$", text, re.M)
    assert head is not None
    body = text[head.start() :].partition("\n\n\ndef get_args()")[0].rstrip()
    assert kernel.num_load == body.count("tl.load")
    assert kernel.num_store == body.count("tl.store")
    assert kernel.num_for_loop == len(re.findall(r"^ +for ", body, re.M))
    assert kernel.num_atomic_add == body.count("tl.atomic_add")
    assert kernel.num_args == len(head[1].split(","))
    assert kernel.line_of_code == len(body.splitlines())
    hints = re.search(r"size_hints=({[^}]*})", text)
    assert kernel.size_hints == (ast.literal_eval(hints[1]) if hints else None)
    hint = re.search(r"reduction_hint=ReductionHint\.(\w+)", text)
    assert kernel.reduction_hint == (hint[1] if hint else None)
    carried = re.search(r"'kernel_num_gb': ([0-9.e-]+)", text)
    assert kernel.kernel_args_num_gb == (float(carried[1]) if carried else None)
    for numel in ("xnumel", "ynumel", "r0_numel"):
        constants = set(re.findall(rf"^ +{numel} = (\d+)$", body, re.M))
        assert getattr(kernel, numel) == (int(constants.pop()) if len(constants) == 1 else None)
    assert kernel.rnumel == kernel.r0_numel or kernel.kernel_category in ("foreach", "combo")


def _function(text: str) -> str:
    match = re.search(r"@triton\.jit\ndef (\w+)\((?!arg0_0)", text)
    assert match is not None
    return match[1]


@pytest.mark.parametrize("name", OWN_MODULES)
def test_loads_and_stores_are_explained_against_inductors(name: str) -> None:
    kernel = only(OWN_MODULES[name])
    for what, ours, theirs in (
        ("loads", kernel.num_load, kernel.inductor_num_load),
        ("stores", kernel.num_store, kernel.inductor_num_store),
    ):
        if theirs is not None and ours != theirs:
            (note,) = [n for n in kernel.notes if n.startswith(f"{ours} {what} in the body")]
            assert f"Inductor counts {theirs}" in note


def test_an_indirect_load_is_what_inductor_leaves_out() -> None:
    # nll_loss picks with an index that it has loaded: 4 calls of tl.load, 'num_load': 3.
    kernel = only(OWN_MODULES["plain/conv_bn.kernel11.py"])
    assert (kernel.num_load, kernel.inductor_num_load) == (4, 3)
    assert "not the 1 whose index was itself loaded" in kernel.notes[0]


@pytest.mark.parametrize("name", OWN_MODULES)
def test_reading_less_gives_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of arithmetic are not parsed; the record is that of the whole text."""
    text = OWN_MODULES[name]
    quick = triton.read_triton(text)
    assert len(triton._without_boilerplate(text)) < 0.9 * len(text)
    monkeypatch.setattr(triton, "_without_boilerplate", lambda source: source)
    whole = triton.read_triton(text)
    assert quick.record == whole.record and quick.accesses == whole.accesses


@pytest.mark.parametrize("name", GRAPHS)
def test_graph_modules(name: str) -> None:
    text = GRAPHS[name]
    kernels = parse_module(text, name)
    generated = [kernel for kernel in kernels if kernel.language != "extern"]
    assert [kernel.kernel_name for kernel in generated] == re.findall(
        r"^(\w+) = async_compile\.triton\(", text, re.M
    )
    for kernel in generated:
        calls = text.count(f" {kernel.kernel_name}.run(")
        # Once more in the benchmark main of the kernel's own text.
        assert kernel.calls == calls - text.count(f" {kernel.kernel_name}.run(*args")
        assert kernel.path == name
        if kernel.kernel_category != "user_autotune":  # Inductor says where it keeps its own
            assert kernel.kernel_path and kernel.kernel_path.endswith(".py")
        assert kernel.total_bytes is not None
        assert set(kernel.arg_shapes) <= set(kernel.arg_dtypes)
    externs = [kernel for kernel in kernels if kernel.language == "extern"]
    called = len(re.findall(r"^ +(?:buf\d+ = )?(?:extern_kernels|torch\.ops|aten)\.", text, re.M))
    assert sum(kernel.calls or 0 for kernel in externs) == called


def test_a_graphs_kernel_is_its_own_modules() -> None:
    """The text of a kernel is in the graph's module and in a file of its own."""
    graph = parse_module(GRAPHS["plain/pointwise.graph1.py"])[0]
    alone = only(OWN_MODULES["plain/pointwise.kernel1.py"])
    from_calls = {
        *("path", "kernel_path", "arg_shapes", "calls", "notes", "aten_ops", "fx_nodes"),
        *("total_bytes", "read_bytes", "written_bytes", "bytes_source"),
    }
    for field in dataclasses.fields(KernelRecord):
        if field.name not in from_calls:
            assert getattr(graph, field.name) == getattr(alone, field.name), field.name
    # (777, 1000) float32 twice in, once out.
    assert graph.total_bytes == 3 * 777 * 1000 * 4
    assert graph.aten_ops == ["aten.sin", "aten.mul", "aten.add"]
    assert graph.fx_nodes == ["sin", "mul", "add"]


def test_symbolic_sizes() -> None:
    kernel, *_ = parse_module(GRAPHS["plain/dynamic.graph1.py"])
    assert (kernel.xnumel, kernel.rnumel, kernel.r0_numel) == (None, None, None)
    assert kernel.symbolic_numels == {"xnumel": "s77", "rnumel": "s27", "r0_numel": "s27"}
    assert kernel.arg_shapes["in_ptr0"] == ["s77", "s27"]
    assert any("sizes that the graph was compiled with" in note for note in kernel.notes)


# --- Kernels of other forms ---------------------------------------------------------------------

IMPORTS = "import triton\nimport triton.language as tl\n\n"


def kernel_module(
    body: str, decorator: str = "pointwise", arguments: str = "in_ptr0, out_ptr0"
) -> str:
    return (
        f"{IMPORTS}@triton_heuristics.{decorator}(\n"
        "    size_hints={'x': 1024}, filename=__file__,\n"
        "    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*bf16', "
        "'xnumel': 'i32'}},\n"
        "    inductor_meta={'grid_type': 'Grid1D'},\n)\n"
        f"@triton.jit\ndef triton_poi_fused_0({arguments}, xnumel, XBLOCK : tl.constexpr):\n"
        f"{textwrap.indent(textwrap.dedent(body), '    ')}"
    )


def test_block_pointers_and_descriptors_count() -> None:
    kernel = only(
        kernel_module("""
        block = tl.make_block_ptr(in_ptr0, shape=[xnumel], strides=[1], block_shape=[XBLOCK])
        tmp0 = tl.load(block, boundary_check=[0])
        tmp1 = tl.load(tl.make_block_ptr(in_ptr0, shape=[8], strides=[1], block_shape=[8]))
        desc = tl.make_tensor_descriptor(in_ptr0, shape=[xnumel], strides=[1], block_shape=[8])
        tmp2 = desc.load([0])
        tmp3 = tl.load_tensor_descriptor(desc, [0])
        out = tl.make_tensor_descriptor(out_ptr0, shape=[xnumel], strides=[1], block_shape=[8])
        out.store([0], tmp2)
        tl.store(tl.make_block_ptr(out_ptr0, [8], [1], [0], [8], [0]), tmp0)
        """)
    )
    assert (kernel.num_load, kernel.num_store) == (4, 2)


def test_only_the_kernels_own_body_counts() -> None:
    text = kernel_module("tl.store(out_ptr0 + (x0), helper(tl.load(in_ptr0 + (x0))))\n")
    helper = "@triton.jit\ndef helper(ptr):\n    for i in range(3):\n        tl.load(ptr)\n\n"
    kernel = only(text.replace("@triton_heuristics", helper + "@triton_heuristics", 1))
    assert kernel.kernel_name == "triton_poi_fused_0"
    assert (kernel.num_load, kernel.num_store, kernel.num_for_loop) == (1, 1, 0)


def test_tiles_and_reductions() -> None:
    kernel = only(
        kernel_module(
            """
            ynumel = 32
            xnumel = 48
            znumel = 2
            r0_numel = 5
            r1_numel = 7
            rnumel = r0_numel * r1_numel
            for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
                for r1_offset in range(0, r1_numel, R1_BLOCK):
                    tmp0 = tl.load(in_ptr0 + (x0), None)
                    tmp1 = tl.sum(tmp0, 1)[:, None]
            tl.atomic_add(out_ptr0 + (x0), tmp1, None, sem='relaxed')
            """,
            "reduction",
        )
    )
    assert (kernel.xnumel, kernel.ynumel, kernel.znumel) == (48, 32, 2)
    assert (kernel.r0_numel, kernel.r1_numel, kernel.rnumel) == (5, 7, 35)
    assert (kernel.num_for_loop, kernel.num_atomic_add, kernel.num_reduction) == (2, 1, 1)
    assert kernel.arg_dtypes == {"in_ptr0": "float32", "out_ptr0": "bfloat16", "xnumel": "int32"}


@pytest.mark.parametrize("category", triton.CATEGORIES)
def test_categories(category: str) -> None:
    assert only(kernel_module("pass\n", category)).kernel_category == category


def test_combo_kernels() -> None:
    text = kernel_module("pass\n").replace(
        "'grid_type': 'Grid1D'",
        "'grid_type': 'SequentialComboKernelGrid', 'combo_grid_meta': {'num_kernels': 2}",
    )
    assert only(text).kernel_category == "combo"


def combo(body: str, helpers: str = "", more: str = "") -> KernelRecord:
    """A combo of two sub-kernels in a graph that launches it, with (10, 20) and (30,)."""
    arguments = ("in_ptr0", "in_ptr1", "out_ptr0", "out_ptr1")
    signature = dict.fromkeys(arguments, "*fp32") | dict.fromkeys(more.split(), "i64")
    source = (
        f"{IMPORTS}{helpers}@triton_heuristics.foreach(\n"
        f"    filename=__file__,\n    triton_meta={{'signature': {signature}}},\n"
        "    inductor_meta={'grid_type': 'SequentialComboKernelGrid', "
        "'combo_grid_meta': {'num_kernels': 2}},\n)\n"
        f"@triton.jit\ndef triton_for_fused_0({', '.join(signature)}):\n"
        "    pid = tl.program_id(0)\n"
        f"{textwrap.indent(textwrap.dedent(body), '    ')}"
    )
    call = (
        "arg0_1, arg1_1, s0 = args\n"
        "assert_size_stride(arg0_1, (10, 20), (20, 1))\n"
        "assert_size_stride(arg1_1, (30, ), (1, ))\n"
        "buf0 = empty_strided_cuda((10, 10), (10, 1), torch.float32)\n"
        "buf1 = empty_strided_cuda((30, ), (1, ), torch.float32)\n"
        "xnumel_0 = 5*s0\n"
        f"triton_for_fused_0.run({', '.join(['arg0_1, arg1_1, buf0, buf1', *more.split()])})"
    )
    inputs = "\n\ndef get_args():\n    s0 = 6\n    return [s0]\n"
    definition = f"triton_for_fused_0 = async_compile.triton('triton_for_fused_0', {source!r})"
    return only(graph_module(definition, call) + inputs)


BRANCHES = """
if pid < num_xblocks_0:
    pid_offset = pid
    xnumel = 100
    r0_numel = 1
    {0}
elif pid < num_xblocks_1:
    pid_offset = pid - num_xblocks_0
    xnumel = 30
    r0_numel = 1
    {1}
else:
    {2}
"""
FUNCTION = """@triton.jit(noinline=True)
def triton_for_fused_0_body_{0}(in_ptr0, out_ptr0, XBLOCK : tl.constexpr):
    xnumel = {1}
    tl.store(out_ptr0 + (x0), tl.load(in_ptr0 + (x0), xmask), xmask)

"""


@pytest.mark.parametrize("form", ["in its branches", "after them", "in functions"])
def test_a_combos_sub_kernels(form: str) -> None:
    """Three forms of code for the same: half of (10, 20), and (30,), each with a store."""
    helpers = ""
    calls = (2, 2)
    if form == "in its branches":
        lines = [
            f"tl.store(out_ptr{i} + (x0), tl.load(in_ptr{i} + (x0 + 10*x1), xmask), xmask)"
            for i in range(2)
        ]
        body = BRANCHES.format(*lines, "pass")
    elif form == "after them":
        lines = [f"foreach_arg0 = in_ptr{i}; foreach_arg1 = out_ptr{i}" for i in (0, 1, 0)]
        body = BRANCHES.format(*lines[:2], f"xnumel = 0; {lines[2]}") + (
            "tmp0 = tl.load(foreach_arg0 + (x0), xmask)\n"
            "tl.store(foreach_arg1 + (x0), tmp0, xmask)\n"
        )
        calls = (1, 1)
    else:
        helpers = FUNCTION.format(0, 100) + FUNCTION.format(1, 30)
        body = """
            if pid < num_blocks_0:
                triton_for_fused_0_body_0(in_ptr0, out_ptr0, XBLOCK_0)
            elif pid < num_blocks_1:
                triton_for_fused_0_body_1(in_ptr1, out_ptr1, XBLOCK_1)
            else:
                pass
        """
    kernel = combo(body, helpers)
    assert (kernel.num_load, kernel.num_store) == calls
    assert (kernel.xnumel, kernel.symbolic_numels["xnumel"]) == (None, "100, 30")
    # 100 of the 200 in, 30 in, 100 and 30 out.
    assert (kernel.read_bytes, kernel.written_bytes) == (4 * 130, 4 * 130)
    assert any("sub-kernels' 2 functions" in note for note in kernel.notes) == bool(helpers)


def test_a_combos_symbolic_sizes() -> None:
    kernel = combo(
        """
        if pid < num_xblocks_0:
            pid_offset = pid
            tl.store(out_ptr0 + (x0), tl.load(in_ptr0 + (x0)))
        elif pid < num_xblocks_1:
            xnumel = 30
            tl.store(out_ptr1 + (x0), tl.load(in_ptr1 + (x0)) + tl.load(in_ptr0 + (x0)))
        else:
            pass
        """,
        more="xnumel_0",
    )
    assert kernel.symbolic_numels["xnumel"] == "5 * s0, 30"
    # Of in_ptr0 5 s0 = 30 in the first loop and 30 in the second, and 30 of in_ptr1.
    assert kernel.read_bytes == 4 * (30 + 30 + 30)
    assert any("counts for each of the foreach's loops" in note for note in kernel.notes)


def test_a_numel_of_one_is_passed() -> None:
    """Triton takes it as a constant, but the call has it all the same."""
    source = kernel_module(
        "xnumel = 1\ntmp0 = tl.load(in_ptr0 + (r0_0), None)\ntl.store(out_ptr0, tmp0)\n",
        "reduction",
    )
    source = source.replace("'xnumel': 'i32'", "'xnumel': 'constexpr', 'r0_numel': 'i32'")
    source = source.replace("xnumel, XBLOCK", "xnumel, r0_numel, XBLOCK")
    (kernel,) = parse_module(
        graph_module(
            f"triton_0 = async_compile.triton('t', {source!r})",
            "s0, = args\ntriton_0.run(buf0, buf1, 1, s0, stream=stream0)",
        )
        + "\n\ndef get_args():\n    s0 = 6\n    return [s0]\n"
    )
    assert (kernel.xnumel, kernel.symbolic_numels) == (1, {"r0_numel": "s0"})
    assert list(kernel.arg_dtypes) == ["in_ptr0", "out_ptr0", "r0_numel"]


def test_parameters_of_a_users_kernel() -> None:
    """Not passed: one with a default, and a constexpr, which may be in quotes."""
    source = (
        f"{IMPORTS}@triton_heuristics.user_autotune(\n    configs=[],\n"
        "    inductor_meta={'grid_type': 'FixedGrid'},\n"
        "    triton_meta={'signature': {'x': '*fp32', 'd': 'tensordesc<fp32[16, 64]>', "
        "'one': 'constexpr', 'B': 'constexpr'}, 'constants': {'one': 1, 'B': 8}},\n)\n"
        "@triton.jit\ndef double(x, d, one, B: 'tl.constexpr', bias=None):\n"
        "    d.store([0, 0], tl.load(x + tl.arange(0, B)) * 2)\n"
    )
    call = (
        "buf0 = empty_strided_cuda((8, 8), (8, 1), torch.float32)\n"
        "buf1 = empty_strided_cuda((16, 64), (64, 1), torch.float32)\n"
        "tma = triton.tools.tensor_descriptor.TensorDescriptor.from_tensor(buf1, [16, 64])\n"
        "double_0.run(buf0, tma, 1, 4, 1, 1, stream=stream0)"
    )
    (kernel,) = parse_module(
        graph_module(f"double_0 = async_compile.triton('d', {source!r})", call)
    )
    assert kernel.arg_dtypes == {"x": "float32", "d": "float32"}
    assert kernel.arg_shapes == {"x": [8, 8], "d": [16, 64]}
    assert kernel.mutated_args == ["d"]
    assert (kernel.read_bytes, kernel.written_bytes) == (8 * 8 * 4, 16 * 64 * 4)
    assert not any("fewer arguments" in note for note in kernel.notes)


def test_a_workspace_is_not_an_index() -> None:
    """A cooperative reduction hands its parts on through ``ws_ptr``."""
    source = kernel_module(
        """
        xnumel = 4
        tmp0 = tl.load(in_ptr0 + (x0), None)
        tmp1_ws = (ws_ptr + 0).to(tl.pointer_type(tl.float32))
        tl.store(tmp1_ws + (xindex * RSPLIT), tmp0)
        tmp1_peers = tl.load(tmp1_ws + (xindex * RSPLIT))
        tl.store(out_ptr0 + (x0), tmp1_peers)
        """,
        "cooperative_reduction",
        "in_ptr0, out_ptr0, ws_ptr",
    )
    source = source.replace("'xnumel'", "'ws_ptr': '*u8', 'xnumel'")
    kernel = only(source.replace("'Grid1D'", "'Grid1D', 'num_load': 1, 'num_store': 1"))
    assert (kernel.num_load, kernel.num_store) == (2, 2)
    said = [note.partition(": ")[2] for note in kernel.notes if "Inductor counts 1" in note]
    assert said == ["not the 1 from its workspace", "not the 1 to its workspace"]


def test_a_kernel_under_triton_jit_alone_is_unknown_with_a_note() -> None:
    text = kernel_module("tl.store(out_ptr0 + (x0), 1)\n")
    start, end = text.index("@triton_heuristics"), text.index("@triton.jit")
    kernel = only(text[:start] + text[end:])
    assert kernel.kernel_category == "unknown" and kernel.num_store == 1
    assert any("category unknown" in note for note in kernel.notes)


def graph_module(definitions: str, call: str = "return args") -> str:
    return (
        "async_compile = AsyncCompile()\n"
        f"{definitions}\n"
        "async_compile.wait(globals())\ndel async_compile\n\n"
        f"def call(args):\n{textwrap.indent(textwrap.dedent(call), '    ')}\n"
    )


def test_multi_kernels() -> None:
    text = graph_module(
        "triton_per_0 = async_compile.triton('triton_per_0', '''"
        + kernel_module("pass\n", "persistent_reduction")
        + "''')\nmulti_kernel_0 = async_compile.multi_kernel('multi_kernel_0', [triton_per_0])\n",
        "buf0 = empty_strided_cuda((8, ), (1, ), torch.float32)\n"
        "buf1 = empty_strided_cuda((8, ), (1, ), torch.bfloat16)\n"
        "multi_kernel_0.run(buf0, buf1, 4, stream=stream0)",
    )
    choice, multi = parse_module(text)
    assert (multi.kernel_category, multi.calls) == ("multi-kernel", 1)
    assert choice.calls == 0 and "launched, if at all, by multi_kernel_0" in choice.notes
    # (8,) float32 in, (8,) bfloat16 out: for the kernel that may be chosen, and for the choice.
    assert choice.total_bytes == multi.total_bytes == 8 * 4 + 8 * 2
    assert any("those of triton_per_0" in note for note in multi.notes)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("'''def broken(:\\n'''", "its source is not Python, or cut short (line 1"),
        ("'''x = 1'''", "no function under a decorator of Triton's"),
        ("'''@triton.jit\\ndef k(a):\\n    b = t\"{a}\" if a else <newer>\\n'''", "not Python"),
    ],
)
def test_a_kernel_that_cannot_be_read_keeps_its_name(source: str, said: str) -> None:
    (kernel,) = parse_module(
        graph_module(f"triton_0 = async_compile.triton('triton_0', {source})", "triton_0.run(b)")
    )
    assert (kernel.kernel_name, kernel.kernel_category, kernel.calls) == ("triton_0", "unknown", 1)
    assert any(said in note for note in kernel.notes)


def test_a_language_that_is_not_read() -> None:
    text = graph_module("new_0 = async_compile.some_new_language('x')")
    (kernel,) = parse_module(text)
    assert (kernel.language, kernel.kernel_category) == ("unknown", "unknown")
    assert any("some_new_language" in note for note in kernel.notes)
    assert kernel_names(text) == [KernelName("new_0", "unknown")]


@pytest.mark.parametrize("name", [*GRAPHS, *named("cpp")])
def test_names_without_a_parser(name: str) -> None:
    text = modules()[name]
    kernels = [kernel for kernel in parse_module(text) if kernel.language != "extern"]
    assert kernel_names(text) == [KernelName(k.kernel_name, k.language) for k in kernels]


# --- Bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not Python at all", "not Python, or cut short (line 1: invalid syntax)"),
        ("", "not generated by Inductor: no function under a decorator of Triton's"),
        ("import os\nprint(os)\n", "not generated by Inductor"),
        ("x = 1\n" * 300_000, "not generated by Inductor: no graph in it, and too long"),
        ("(" * 5000, "not Python"),
        ("a\0b", "null bytes"),
        (GRAPHS["plain/adam.graph1.py"][:3000], "cut short (line"),
        (OWN_MODULES["plain/adam.kernel1.py"][:2000], "cut short (line"),
    ],
)
def test_bad_input_is_one_line(text: str, said: str) -> None:
    with pytest.raises(ParseError, match=re.escape(said)) as caught:
        parse_module(text)
    assert "\n" not in str(caught.value)


def test_a_module_that_is_cut_short_in_its_wrapper() -> None:
    text = GRAPHS["plain/reduction.graph1.py"]
    cut = text[: text.index("buf3 = empty_strided_cuda((64, ")]
    kernels = parse_module(cut + "buf3 = empty_strided_cuda((64, ")
    assert len(kernels) >= 5
    for kernel in kernels[:5]:
        assert kernel.kernel_category != "unknown" and kernel.calls is None
        assert any("the calls are unknown" in note for note in kernel.notes)


@pytest.mark.parametrize("form", ["graph", "kernel"])
def test_nothing_is_run(tmp_path: Path, form: str) -> None:
    """Every place at which importing, calling or evaluating the code would write the file."""
    proof = tmp_path / "was_run"
    bomb = f"__import__('pathlib').Path({str(proof)!r}).touch()"
    kernel = kernel_module(f"tl.store(out_ptr0 + (x0), tl.load(in_ptr0 + ({bomb})))\n")
    kernel = f"{bomb}\n" + kernel.replace("'grid_type'", f"'device': {bomb}, 'grid_type'")
    kernel = kernel.replace("size_hints={'x': 1024}", f"size_hints={bomb}")
    text = kernel
    if form == "graph":
        text = (
            bomb
            + "\n"
            + graph_module(
                f"triton_0 = async_compile.triton('triton_0', '''{kernel}''', x={bomb})\n{bomb}",
                f"buf0 = empty_strided_cuda(({bomb}, 2), (2, 1), torch.float32)\n"
                f"triton_0.run(buf0, {bomb}, stream={bomb})\n"
                f"extern_kernels.mm(buf0, {bomb}, out=buf0)",
            )
        )
    assert parse_module(text)
    file = tmp_path / "module.py"
    file.write_text(text)
    command = [sys.executable, "-m", "instrumented_backend", "kernels", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not proof.exists()
    # The proof proves something: running the text does write the file.
    subprocess.run([sys.executable, str(file)], capture_output=True, cwd=tmp_path)
    assert proof.exists()


# --- C++ ----------------------------------------------------------------------------------------


def test_cpp_reduction() -> None:
    """Counted by hand in the text: seven loops over the data, of which three hold a tail too."""
    (kernel,) = parse_module(modules()["cpp/reduction.py"])
    assert kernel.kernel_name == "cpp_fused__softmax_amax_sum_0"
    assert (kernel.language, kernel.kernel_category) == ("cpp", "reduction")
    assert (kernel.vectorized, kernel.parallel, kernel.num_for_loop) == (True, True, 7)
    # x in three loops, the two sums of a row again, the maximum of the rows.
    assert (kernel.num_load, kernel.num_store) == (6, 5)
    assert kernel.num_reduction == 4
    assert kernel.arg_dtypes == dict.fromkeys(
        ["in_ptr0", *(f"out_ptr{i}" for i in range(5))], "float32"
    )
    assert kernel.arg_shapes["out_ptr4"] == [517] and kernel.arg_shapes["out_ptr3"] == []
    # (300, 517) in; (300, 1) twice, (300, 517), a scalar and (517,) out; 4 bytes each.
    assert kernel.read_bytes == 300 * 517 * 4
    assert kernel.written_bytes == (2 * 300 + 300 * 517 + 1 + 517) * 4


def test_cpp_subgraphs() -> None:
    """``torch.cond``: the branches are functions between the definitions."""
    gt, true, false = parse_module(modules()["cpp/cond.py"])
    assert [kernel.calls for kernel in (gt, true, false)] == [1, 1, 1]
    assert true.kernel_name == "cpp_fused_add_gt_sin_1" and true.total_bytes == 2 * 64 * 100 * 4
    assert (false.num_load, false.num_store, false.num_for_loop) == (1, 1, 1)


def test_cpp_symbolic_sizes() -> None:
    kernel, mm = parse_module(modules()["cpp/dynamic.py"])
    assert kernel.arg_shapes["in_ptr0"] == ["s97", "s97"]
    # Compiled for 64: two (64, 64) in, (64,) out.
    assert kernel.total_bytes == (2 * 64 * 64 + 64) * 4
    assert mm.kernel_name == "extern_kernels.mm" and mm.arg_shapes["arg0"] == [1, "s97"]
    assert mm.flops == 2 * 1 * 64 * 64


def test_cpp_sizes_that_depend_on_data() -> None:
    kernel, nonzero = parse_module(modules()["cpp/unbacked.py"])
    assert kernel.total_bytes is None
    assert any(note.startswith("bytes unknown") and "u0" in note for note in kernel.notes)
    assert nonzero.kernel_name == "torch.ops.aten.nonzero.default" and nonzero.calls == 1


def test_cpp_template() -> None:
    gemm, softmax = parse_module(modules()["cpp/template.py"])
    assert (gemm.kernel_category, softmax.kernel_category) == ("template", "reduction")
    assert gemm.vectorized and gemm.parallel
    # (4, 64, 32) times (4, 32, 64).
    assert gemm.flops == 2 * 4 * 64 * 32 * 64
    assert gemm.total_bytes == (4 * 64 * 32 + 4 * 32 * 64 + 4 * 64 * 64) * 4


def test_cpp_wrapper() -> None:
    (kernel,) = parse_module(modules()["cpp/cpp_wrapper.py"])
    assert kernel.kernel_name == "cpp_fused_add_relu_sum_0" and kernel.num_load == 1
    assert kernel.calls is None and any("cpp_wrapper" in note for note in kernel.notes)


def cpp_kernel(body: str) -> KernelRecord:
    source = (
        '#include <x.h>\nextern "C"  void  kernel(const float* in_ptr0,\n'
        "                       const int64_t* in_ptr1,\n"
        "                       float* out_ptr0)\n{\n" + textwrap.dedent(body) + "}\n"
    )
    text = graph_module(
        "cpp_fused_0 = async_compile.cpp_pybinding(['const float*'], r'''\n" + source + "''')"
    )
    return only(text)


LOOP = (
    "for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(8L); "
    "x0+=static_cast<int64_t>(1L))\n{\n"
)


def test_cpp_scalar_serial_loop() -> None:
    kernel = cpp_kernel(
        LOOP
        + "auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];\n"
        + "auto tmp1 = in_ptr1[static_cast<int64_t>(x0)];\n"
        + "out_ptr0[static_cast<int64_t>(x0)] = tmp0 == tmp1;\n}\n"
    )
    assert (kernel.vectorized, kernel.parallel, kernel.num_for_loop) == (False, False, 1)
    assert (kernel.num_load, kernel.num_store, kernel.kernel_category) == (2, 1, "pointwise")
    assert kernel.arg_dtypes == {"in_ptr0": "float32", "in_ptr1": "int64", "out_ptr0": "float32"}


def test_cpp_atomics_and_transposes() -> None:
    kernel = cpp_kernel(
        "#pragma omp parallel for\n"
        + LOOP
        + "transpose_mxn<float,static_cast<int64_t>(16),false>(in_ptr0 + static_cast<int64_t>(x0), "
        "static_cast<int64_t>(8L), tmp0, static_cast<int64_t>(16));\n"
        "transpose_mxn<float,static_cast<int64_t>(16),false>(tmp0, static_cast<int64_t>(8L), "
        "out_ptr0 + static_cast<int64_t>(x0), static_cast<int64_t>(16));\n"
        "atomic_add(&out_ptr0[static_cast<int64_t>(tmp1)], tmp0);\n"
        "atomic_add_vec<float, 2, 1>(out_ptr0, tmp25, tmp22);\n"
        "auto tmp3 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x0));\n}\n"
    )
    assert (kernel.num_load, kernel.num_store, kernel.num_atomic_add) == (1, 1, 2)
    assert (kernel.vectorized, kernel.parallel) == (True, True)


def test_cpp_symbolic_loops_reach_a_part() -> None:
    """A gather of ks0 rows, and a slice: not the whole of what they are taken from."""
    source = (
        'extern "C"  void  kernel(const int64_t* in_ptr0,\n'
        "                       const float* in_ptr1,\n"
        "                       float* out_ptr0,\n"
        "                       const int64_t ks0)\n{\n"
        "for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>("
        "c10::div_floor_integer(static_cast<int64_t>(ks0), static_cast<int64_t>(2L))); "
        "x0+=static_cast<int64_t>(1L))\n{\n"
        "for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(10L); "
        "x1+=static_cast<int64_t>(1L))\n{\n"
        "auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];\n"
        "auto tmp1 = in_ptr1[static_cast<int64_t>(x1 + 64L*tmp0)];\n"
        "out_ptr0[static_cast<int64_t>(x1 + 10L*x0)] = tmp1;\n}\n}\n}\n"
    )
    call = (
        "arg0_1, arg1_1, s0 = args\n"
        "assert_size_stride(arg0_1, (s0, ), (1, ))\n"
        "assert_size_stride(arg1_1, (1000, 64), (64, 1))\n"
        "buf0 = empty_strided_cpu((3, 10), (10, 1), torch.float32)\n"
        "cpp_fused_0(arg0_1, arg1_1, buf0, s0)"
    )
    text = graph_module(f"cpp_fused_0 = async_compile.cpp_pybinding([], {source!r})", call)
    kernel = only(text + "\n\ndef get_args():\n    s0 = 6\n    return [s0]\n")
    # 3 x 10 points; in_ptr0 has 6 of 8 bytes, in_ptr1 gives one element to each point.
    assert kernel.read_bytes == 6 * 8 + 30 * 4
    assert kernel.written_bytes == 30 * 4


def test_cpp_products_and_frozen_weights() -> None:
    """Two products of one input; a weight and the bias are the module's own."""
    source = (
        "void micro_gemm(const float* A) { constexpr int64_t N = 6; }\n"
        'extern "C"\nvoid kernel(const float* X, const float* W, const float* W1, '
        "const float* in_ptr3, float* Y, float* Y1, const int64_t ks0)\n{\n"
        "    constexpr int64_t N = 6;\n    constexpr int64_t K = 8;\n"
        "    const int64_t M = static_cast<int64_t>(ks0);\n"
        "    #pragma omp parallel\n    micro_gemm(X + 8, W, Y);\n}\n"
    )
    call = (
        "arg0_1, s0 = args\n"
        "assert_size_stride(arg0_1, (s0, 16), (16, 1))\n"
        "buf0 = empty_strided_cpu((4, 6), (6, 1), torch.float32)\n"
        "buf1 = empty_strided_cpu((4, 6), (6, 1), torch.float32)\n"
        "cpp_fused_0(arg0_1, constant0, constant1, _frozen_param2, buf0, buf1, s0)"
    )
    inputs = "\n\ndef get_args():\n" + "".join(
        f"    global {name}\n    {name} = rand_strided({shape}, (1,), dtype=torch.float32)\n"
        for name, shape in (("constant0", (8, 6)), ("constant1", (8, 6)), ("_frozen_param2", (6,)))
    )
    text = graph_module(f"cpp_fused_0 = async_compile.cpp_pybinding([], {source!r})", call)
    kernel = only(text + inputs + "    s0 = 4\n    return [s0]\n")
    assert kernel.flops == 2 * (2 * 4 * 6 * 8)
    # 4 x 8 of the input, the weights, the bias; both outputs.
    assert kernel.read_bytes == 4 * (4 * 8 + 2 * 8 * 6 + 6)
    assert kernel.written_bytes == 4 * (2 * 4 * 6)
    assert (kernel.num_load, kernel.num_store) == (None, None)
    assert any("the template's own functions" in note for note in kernel.notes)


# --- Time ---------------------------------------------------------------------------------------


@pytest.mark.no_cover
def test_ten_thousand_modules_take_less_than_ten_seconds() -> None:
    """A thousand of distinct text in a tenth of that; the best of three runs, on a busy machine."""
    texts = list(named("plain", "kernel").values())
    distinct = [texts[i % len(texts)].replace("tmp0", f"tmp0{i}") for i in range(1000)]
    best = min(_seconds(distinct) for _ in range(3))
    assert best < 1.0


def _seconds(texts: list[str]) -> float:
    start = time.process_time()
    for text in texts:
        parse_module(text)
    return time.process_time() - start


def test_parsing_does_not_import_torch() -> None:
    program = (
        "import sys; import instrumented_backend.kernels.collect;assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ})
