"""Bytes and operations: by hand, against Inductor's own figures, against its scheduler's."""

import re

import pytest
from conftest import RunProgram
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
    line: str, shapes: dict[str, tuple[int, ...]], flops: int, moved: int
) -> None:
    record = extern(line, shapes)
    assert (record.flops, record.flops_source) == (flops, "estimated")
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


SCHEDULER = """
    import json, torch
    import torch.nn.functional as F
    from torch._inductor import graph, scheduler
    from instrumented_backend.kernels.parse import parse_module
    seen, codes = [], []
    original = scheduler.Scheduler.codegen
    def codegen(self):
        seen.append([n.get_read_write_buffers_sizes() for n in self.nodes if not n.is_extern()])
        return original(self)
    scheduler.Scheduler.codegen = codegen
    graph.GraphLowering.save_output_code = staticmethod(codes.append)
    r = torch.randn
    programs = {
        "pointwise": (lambda x, y: (x.sin() + y).relu(), r(1000, 37), r(1000, 37)),
        "slices": (lambda x: x[:, :10] * 2 + x[:, 20:30], r(64, 100)),
        "cat": (lambda a, b: torch.cat([a.sin(), b.cos()], 1), r(64, 100), r(64, 50)),
        "transpose": (lambda a: a.t().contiguous() + 1, r(64, 100)),
        "gather": (lambda a, i: a[i] * 2, r(1000, 64), torch.randint(0, 1000, (32,))),
        "pool": (lambda a: F.max_pool2d(a, 2), r(2, 8, 32, 32)),
        "broadcast": (lambda a, b: a + b, r(1000, 64), r(64)),
        "sum": (lambda a: a.sum(-1), r(60, 64)),
        "bfloat16": (lambda a: a.to(torch.bfloat16), r(60, 64)),
    }
    for name, (function, *inputs) in programs.items():
        seen.clear(), codes.clear()
        torch._dynamo.reset()
        torch.compile(function)(*inputs)
        kernels = [k.total_bytes for c in codes for k in parse_module(c) if k.language == "cpp"]
        print(json.dumps([name, sum(seen[0]), sum(kernels)]))
"""


def test_cpp_bytes_are_the_schedulers(run_program: RunProgram) -> None:
    """Equal for a kernel of one scheduler node, and for one of several that share no buffer."""
    done = run_program(SCHEDULER, env={"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"})
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(lines) == 9
    for line in lines:
        _, theirs, ours = line.strip("[]").split(", ")
        assert int(ours) == int(theirs) > 0, line
