"""Triton kernels of every form, against what can be counted by hand."""

import textwrap

import pytest
from kernel_data import IMPORTS, graph_module, kernel_module, only

from instrumented_backend.kernels import triton_syntax
from instrumented_backend.kernels.parse import parse_module
from instrumented_backend.records import KernelRecord


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


@pytest.mark.parametrize("category", triton_syntax.CATEGORIES)
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
