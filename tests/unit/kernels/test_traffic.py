"""Bytes and operations: by hand, against Inductor's own figures, against its scheduler's."""

import re

import pytest
from kernel_data import modules, named

from instrumented_backend.kernels.parse import parse_module
from instrumented_backend.records import KernelRecord


def _by_base_name(folder: str) -> dict[tuple[str, str, int], KernelRecord]:
    """Numbers differ where tuning padded a product in one run; the order does not."""
    found: dict[tuple[str, str, int], KernelRecord] = {}
    for name, text in named(folder, "graph").items():
        file = name.partition("/")[2]
        for kernel in parse_module(text):
            if kernel.language != "extern":
                base = kernel.kernel_name.rstrip("0123456789")
                repeat = sum(key[:2] == (file, base) for key in found)
                found[file, base, repeat] = kernel
    return found


def test_bytes_are_inductors() -> None:
    """`plain` is computed from the calls; `bk` carries Inductor's ``kernel_num_gb``."""
    computed, carried = _by_base_name("plain"), _by_base_name("bk")
    theirs = {
        key: round(kernel.kernel_args_num_gb * 1e9)
        for key, kernel in carried.items()
        if kernel.kernel_args_num_gb is not None
    }
    assert len(theirs) == 46 and set(theirs) <= set(computed)
    ours = {key: computed[key].total_bytes for key in theirs}
    assert all(kernel.bytes_source == "estimated" for kernel in computed.values())
    different = {key for key in theirs if ours[key] != theirs[key]}
    assert len(different) <= 0.1 * len(theirs)
    # Inductor leaves out the buffer that the user's kernel wrote: it says half.
    (key,) = different
    assert key[:2] == ("user_triton.graph1.py", "triton_poi_fused_relu_")
    assert (ours[key], theirs[key]) == (2 * 98432 * 4, 98432 * 4)
    assert any("was changed by a kernel before" in note for note in computed[key].notes)


def test_inductors_figure_goes_before_ours() -> None:
    for key, kernel in _by_base_name("bk").items():
        if kernel.kernel_args_num_gb is None:
            continue
        assert kernel.bytes_source == "inductor"
        assert kernel.total_bytes == round(kernel.kernel_args_num_gb * 1e9)
        if kernel.read_bytes is not None and kernel.written_bytes is not None:
            assert kernel.read_bytes + kernel.written_bytes == kernel.total_bytes, key
        else:
            assert any("read and written bytes unknown" in note for note in kernel.notes)


def test_flops_of_a_template_are_inductors() -> None:
    product = parse_module(modules()["plain/template.graph1.py"])[0]
    carried = re.search(r"'kernel_flop': (\d{6,})", modules()["bk/template.graph1.py"])
    assert carried is not None
    # (2048, 1024) times (1024, 2048)
    assert product.flops == int(carried[1]) == 2 * 2048 * 1024 * 2048
    assert (product.flops_source, product.kernel_category) == ("estimated", "template")


def template(parameters: str, sizes: str, shapes: dict[str, tuple[int, ...]]) -> KernelRecord:
    """The record of one template's launch; ``sizes`` are statements of its body."""
    names = parameters.split(", ")
    signature = {name: "i32" if name == "ks0" else "*bf16" for name in names}
    body = "".join(f"    {line}\n" for line in sizes.split("; "))
    source = (
        f"@triton_heuristics.template(\n    triton_meta={{'signature': {signature}}},\n"
        f"    inductor_meta={{'kernel_flop': 0}},\n)\n@triton.jit\ndef triton_tem({parameters}):\n"
        f"{body}    tl.store(out_ptr0 + 0, 0)\n"
    )
    made = "".join(
        f"    {name} = empty_strided_cuda({shape}, (1,), torch.bfloat16)\n"
        for name, shape in shapes.items()
    )
    passed = [*shapes, "s0"][: len(names)]
    (record,) = parse_module(
        f"\nasync_compile = AsyncCompile()\nk = async_compile.triton('k', {source!r})\n"
        f"async_compile.wait(globals())\ndef call(args):\n{made}    s0, = args\n"
        f"    k.run({', '.join(passed)}, stream=0)\n    return\n\n"
        "def get_args():\n    s0 = 8\n    return [s0]\n"
    )
    return record


@pytest.mark.parametrize(
    ("parameters", "sizes", "shapes", "flops", "moved"),
    [
        # The operands are parts of larger buffers: (4, 8) of (4, 16) and (8, 6) of (8, 60).
        (
            "arg_A, arg_B, out_ptr0",
            "M = 4; N = 6; K = 8",
            {"a": (4, 16), "b": (8, 60), "c": (4, 6)},
            2 * 4 * 6 * 8,
            4 * 8 + 8 * 6 + 4 * 6,
        ),
        # A batch of 3, a symbolic K, and a vector that an epilogue reads.
        (
            "arg_A, arg_B, in_ptr2, out_ptr0, ks0",
            "M = 4; N = 6; K = 2*ks0",
            {"a": (3, 4, 16), "b": (3, 16, 6), "v": (6,), "c": (3, 4, 6)},
            3 * 2 * 4 * 6 * 16,
            3 * 4 * 16 + 3 * 16 * 6 + 6 + 3 * 4 * 6,
        ),
        # Two products, their sum.
        (
            "arg_A, arg_B, arg_C, arg_D, out_ptr0",
            "M = 4; N = 6; K1 = 8; K2 = 10",
            {"a": (4, 8), "b": (8, 6), "c": (4, 10), "d": (10, 6), "o": (4, 6)},
            2 * 4 * 6 * (8 + 10),
            4 * 8 + 8 * 6 + 4 * 10 + 10 * 6 + 4 * 6,
        ),
        # Three dimensions: 2 images, 5 channels of 4 x 4 x 4, from 3 of 3 x 3 x 3.
        (
            "arg_X, arg_W, out_ptr0",
            "BATCH = 2; IN_C = 3; OUT_C = 5; OUT_D = 4; OUT_H = 4; OUT_W = 4; "
            "KERNEL_D : tl.constexpr = 3; KERNEL_H : tl.constexpr = 3; KERNEL_W : tl.constexpr = 3",
            {"x": (2, 3, 6, 6, 6), "w": (5, 3, 3, 3, 3), "o": (2, 5, 4, 4, 4)},
            2 * (2 * 5 * 64) * (3 * 27),
            2 * 3 * 216 + 5 * 3 * 27 + 2 * 5 * 64,
        ),
        # Attention: 2 heads, 5 queries by 7 keys of 8, values of 9.
        (
            "arg_Q, arg_K, arg_V, out_ptr0",
            "QK_HEAD_DIM : tl.constexpr = 8",
            {"q": (1, 2, 5, 8), "k0": (1, 2, 7, 8), "v": (1, 2, 7, 9), "o": (1, 2, 5, 9)},
            2 * 2 * 5 * 7 * 8 + 2 * 2 * 5 * 7 * 9,
            2 * 5 * 8 + 2 * 7 * 8 + 2 * 7 * 9 + 2 * 5 * 9,
        ),
    ],
)
def test_templates(
    parameters: str, sizes: str, shapes: dict[str, tuple[int, ...]], flops: int, moved: int
) -> None:
    record = template(parameters, sizes, shapes)
    assert (record.flops, record.flops_source) == (flops, "estimated")
    assert record.total_bytes == 2 * moved
    fused = "in_ptr2" in parameters
    assert any("in_ptr2 of what was fused in" in note for note in record.notes) == fused


POINTWISE = """
@triton_heuristics.pointwise(
    triton_meta={{'signature': {{'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32'}}}},
    inductor_meta={{'mutated_arg_names': {mutated}}},
)
@triton.jit
def k(in_ptr0, out_ptr0, xnumel):
    xnumel = {numel}
    tl.store(out_ptr0 + (x0), tl.load(in_ptr0 + (x0)) + 1)
"""


def test_one_buffer_for_two_pointers() -> None:
    """Of (10, 20) the first 40 are changed; the next kernel reads it under another name."""
    first_source = POINTWISE.format(mutated=["in_ptr0", "out_ptr0"], numel=40)
    second_source = POINTWISE.format(mutated=[], numel=200)
    first, second = parse_module(
        f"\nasync_compile = AsyncCompile()\nk0 = async_compile.triton('k0', {first_source!r})\n"
        f"k1 = async_compile.triton('k1', {second_source!r})\n"
        "async_compile.wait(globals())\ndef call(args):\n    a, = args\n"
        "    assert_size_stride(a, (10, 20), (20, 1))\n    k0.run(a, a, 40, stream=0)\n"
        "    b = empty_strided_cuda((10, 20), (20, 1), torch.float32)\n"
        "    k1.run(a, b, 200, stream=0)\n    return\n"
    )
    assert (first.read_bytes, first.written_bytes) == (40 * 4, 40 * 4)
    assert any("in_ptr0 and out_ptr0 are one buffer" in note for note in first.notes)
    assert second.total_bytes == 2 * 200 * 4
    assert any("in_ptr0 was changed by a kernel before" in note for note in second.notes)


def extern(line: str, shapes: dict[str, tuple[int, ...]]) -> KernelRecord:
    """The record of one extern call whose operands have these shapes."""
    made = "".join(
        f"    {name} = empty_strided_cuda({shape}, (1,), torch.float32)\n"
        for name, shape in shapes.items()
    )
    text = (
        f"\nasync_compile = AsyncCompile()\nasync_compile.wait(globals())\ndef call(args):\n{made}"
    )
    (record,) = parse_module(f"{text}    {line}\n    return\n")
    return record


@pytest.mark.parametrize(
    ("line", "shapes", "flops", "moved"),
    [
        (
            "extern_kernels.mm(a, b, out=c)",
            {"a": (3, 5), "b": (5, 7), "c": (3, 7)},
            2 * 3 * 5 * 7,
            3 * 5 + 5 * 7 + 3 * 7,
        ),
        (
            "extern_kernels.mm(a, reinterpret_tensor(b, (5, 7), (1, 5), 0), out=c)",
            {"a": (3, 5), "b": (7, 5), "c": (3, 7)},
            2 * 3 * 5 * 7,
            3 * 5 + 5 * 7 + 3 * 7,
        ),
        (
            "extern_kernels.addmm(d, a, b, alpha=1, beta=1, out=c)",
            {"d": (7,), "a": (3, 5), "b": (5, 7), "c": (3, 7)},
            2 * 3 * 5 * 7,
            7 + 3 * 5 + 5 * 7 + 3 * 7,
        ),
        (
            "extern_kernels.bmm(a, b, out=c)",
            {"a": (2, 3, 5), "b": (2, 5, 7), "c": (2, 3, 7)},
            2 * 2 * 3 * 5 * 7,
            2 * (3 * 5 + 5 * 7 + 3 * 7),
        ),
        (
            "extern_kernels.baddbmm(d, a, b, alpha=1, beta=1, out=c)",
            {"d": (2, 3, 7), "a": (2, 3, 5), "b": (2, 5, 7), "c": (2, 3, 7)},
            2 * 2 * 3 * 5 * 7,
            2 * (2 * 3 * 7 + 3 * 5 + 5 * 7),
        ),
        (
            "x = torch.ops.aten.stack.default([a, b, c])\n"
            "    assert_size_stride(x, (3, 7), (7, 1))",
            {"a": (7,), "b": (7,), "c": (7,)},
            None,
            2 * 3 * 7,
        ),
        (
            # 8 outputs of 4 x 4 from 3 channels and 3 x 3 weights each
            "x = extern_kernels.convolution(a, b, stride=(1, 1), padding=(0, 0), dilation=(1, 1), "
            "transposed=False, output_padding=(0, 0), groups=1, bias=None)\n"
            "    assert_size_stride(x, (2, 8, 4, 4), (128, 16, 4, 1))",
            {"a": (2, 3, 6, 6), "b": (8, 3, 3, 3)},
            2 * (2 * 8 * 4 * 4) * (3 * 3 * 3),
            2 * 3 * 6 * 6 + 8 * 3 * 3 * 3 + 2 * 8 * 4 * 4,
        ),
        (
            # transposed: each of the inputs goes to 8 x 3 x 3 outputs
            "x = extern_kernels.convolution(a, b, stride=(1, 1), padding=(0, 0), dilation=(1, 1), "
            "transposed=True, output_padding=(0, 0), groups=1, bias=None)\n"
            "    assert_size_stride(x, (2, 8, 8, 8), (512, 64, 8, 1))",
            {"a": (2, 3, 6, 6), "b": (3, 8, 3, 3)},
            2 * (2 * 3 * 6 * 6) * (8 * 3 * 3),
            2 * 3 * 6 * 6 + 3 * 8 * 3 * 3 + 2 * 8 * 8 * 8,
        ),
    ],
)
def test_extern_calls(
    line: str, shapes: dict[str, tuple[int, ...]], flops: int | None, moved: int
) -> None:
    record = extern(line, shapes)
    assert (record.flops, record.flops_source) == (flops, flops and "estimated")
    assert (record.total_bytes, record.bytes_source) == (4 * moved, "estimated")
    assert record.read_bytes is not None and record.written_bytes is not None
    assert record.read_bytes + record.written_bytes == record.total_bytes
    assert any("each operand once" in note for note in record.notes)


def test_a_convolutions_backward() -> None:
    records = parse_module(modules()["cpp/conv_backward.py"])
    backward = [r for r in records if r.kernel_name.endswith("convolution_backward.default")]
    # Gradient (2, 8, 7, 7) of 3 x 3 weights from 16 channels: the input's and the weight's.
    assert backward[0].flops == 2 * 2 * (2 * 8 * 7 * 7) * (16 * 3 * 3)
    # The first layer needs no gradient of its input: (2, 16, 32, 32), 3 channels.
    assert backward[1].flops == 2 * (2 * 16 * 32 * 32) * (3 * 3 * 3)


def test_unknown_is_null_with_a_note() -> None:
    record = extern("torch.ops.mylib.foo.default(a, unknown, out=c)", {"a": (3,), "c": (3,)})
    assert record.total_bytes == 2 * 3 * 4  # what is no tensor counts for nothing
    record = extern("x = torch.ops.aten.nonzero.default(a)", {"a": (3,)})
    assert record.total_bytes is record.flops is None
    assert any(note.startswith("bytes unknown") for note in record.notes)
