"""A wrapper function followed without being run: by hand, and in pieces against the whole."""

import ast
import textwrap

import pytest
from kernel_data import modules, named

from instrumented_backend.kernels import pieces
from instrumented_backend.kernels.parse import parse_module
from instrumented_backend.kernels.pieces import pieces_of
from instrumented_backend.kernels.provenance import Provenance, read_comment
from instrumented_backend.kernels.wrapper import Size, Tensor, Wrapper

GRAPHS = {**named("plain", "graph"), **named("cpp")}
del GRAPHS["cpp/cpp_wrapper.py"]  # which has no Python to follow


def follow(body: str, inputs: str = "") -> Wrapper:
    """Follow a call of kernel ``k`` in ``call``; ``inputs`` is the body of ``get_args``."""
    wrapper = Wrapper(["k"])
    if inputs:
        function = ast.parse("def get_args():\n" + textwrap.indent(inputs, " ")).body[0]
        assert isinstance(function, ast.FunctionDef)
        wrapper.read_inputs(function)
    text = "def call(args):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    for statements, lines in pieces_of(text, pause=lambda: None):
        wrapper.follow_piece(statements, lines)
    return wrapper


def shapes(body: str, inputs: str = "") -> list[object]:
    """What the one launch of ``k`` gets: shapes of numbers and symbols, or the arguments."""
    (call,) = follow(body, inputs).calls
    return [
        tuple(s.text if s.exact is None else s.exact for s in value.shape)
        if isinstance(value, Tensor) and value.shape is not None
        else value
        for value in call.arguments
    ]


@pytest.mark.parametrize(
    ("body", "passed"),
    [
        (
            "buf0 = empty_strided_cuda((2, 3), (3, 1), torch.float32)\nk.run(buf0, 6)",
            [(2, 3), Size("6", 6)],
        ),
        ("buf0 = empty_strided_cpu((), (), torch.float32)\nk(buf0)", [()]),
        (
            "buf0 = empty_strided_cpu((2, ), (1, ), torch.int8)\n"
            "buf1 = buf0; del buf0  # reuse\nk(buf1)",
            [(2,)],
        ),
        (
            "buf0 = empty_strided_cpu((6, ), (1, ), torch.int8)\n"
            "buf1 = reinterpret_tensor(buf0, (2, 3), (3, 1), 0); del buf0  # reuse\nk(buf1)",
            [(2, 3)],
        ),
        ("k(reinterpret_tensor(arg0_1, (2, 3), (3, 1), 0))", [(2, 3)]),
        (
            "arg0_1, = args\nassert_size_stride(arg0_1, (2, 3), (3, 1), 'input')\n"
            "arg0_1 = copy_if_misaligned(arg0_1)\nk(arg0_1)",
            [(2, 3)],
        ),
        ("n = 2*s0 + 1\nk(n)", [Size("2 * s0 + 1")]),
        (
            "d = triton.tools.experimental_descriptor.create_1d_tma_descriptor("
            "reinterpret_tensor(arg0_1, (2, 3), (3, 1), 0).data_ptr(), 2, 3, 4)\nk(d)",
            [(2, 3)],
        ),
        (
            "pool1 = empty_strided_cpu((64, ), (1, ), torch.uint8)\n"
            "buf0 = alloc_from_pool(pool1, 0, torch.float32, (4, 4), (4, 1))\nk(buf0)",
            [(4, 4)],
        ),
        (
            "arg0_1, = args\nargs.clear()\n"
            "assert_size_stride(arg0_1, (5, 7), (7, 1), 'input')\nk(arg0_1)",
            [(5, 7)],
        ),
        (
            "arg0_1, arg1_1 = args\n"
            "assert_size_stride_grouped((arg0_1, arg1_1), ((5, 7), (3,)), ((7, 1), (1,)))\n"
            "k(arg1_1, arg0_1)",
            [(3,), (5, 7)],
        ),
        (
            "arg0_1, arg1_1 = args\ns77 = arg0_1\n"
            "assert_size_stride(arg1_1, (s77, 2*s77), (1, 1))\n"
            "with torch.cuda._DeviceGuard(0):\n    torch.cuda.set_device(0)\n"
            "    k.run(arg1_1, stream=stream0)",
            [("s77", "2 * s77")],
        ),
        (
            "if buf1.item():\n    buf2 = empty_strided_cpu((3, ), (1, ), torch.bool)\n"
            "    k(buf2)\nelse:\n    pass",
            [(3,)],
        ),
        (
            "buf0 = empty_strided_cpu((3, ), (1, ), torch.bool)\nk(c_void_p(buf0.data_ptr()))",
            [(3,)],
        ),
    ],
)
def test_what_a_launch_is_passed(body: str, passed: list[object]) -> None:
    assert shapes(body) == passed


def test_a_part_of_what_an_op_returned() -> None:
    sort, call = follow("""
        buf0 = torch.ops.aten.sort.stable(arg0_1)
        buf1 = buf0[1]
        assert_tensor_metadata(buf1, (9,), (1,), torch.int64, 'torch.ops.aten.sort.stable')
        k(buf1)
    """).calls
    assert sort.kernel == "torch.ops.aten.sort.stable"
    (value,) = call.arguments
    assert isinstance(value, Tensor) and value.numel == Size("9", 9, 9)
    assert value.dtype == "int64"
    assert sort.result is not None and sort.result.parts == [value]


def test_symbols_have_the_values_of_the_modules_own_inputs() -> None:
    inputs = (
        "arg0_1 = 100\n"
        "arg1_1 = rand_strided((100, 300), (300, 1), device='cuda:0', dtype=torch.int8)"
    )
    body = """
        arg0_1, arg1_1 = args
        s77 = arg0_1
        assert_size_stride(arg1_1, (s77, 3*s77), (300, 1))
        buf0 = empty_strided_cuda((((-1)*s77) + (s77*max(2, s77) // 7) % 4099, ), (1, ), torch.int8)
        k.run(arg1_1, buf0, 2*s77, u0, stream=stream0)
    """
    (call,) = follow(body, inputs).calls
    argument, buffer, double, unbacked = call.arguments
    assert isinstance(argument, Tensor) and isinstance(buffer, Tensor)
    assert argument.dtype == "int8" and argument.numel == Size("s77 * 3 * s77", None, 30_000)
    # -100 + (100 * 100 // 7) % 4099 = -100 + 1428
    assert buffer.numel is not None and buffer.numel.known == 1328
    assert double == Size("2 * s77", None, 200)
    assert unbacked is None


def test_comments_are_about_the_next_launch_only() -> None:
    body = """
        # Topologically Sorted Source Nodes: [a, b], Original ATen: [aten.add, aten.mm]
        stream0 = get_raw_stream(0)
        k.run(buf0, stream=stream0)
        k.run(buf0, stream=stream0)
        # File: /home/me/model.py:12 in forward, code: return x + 1
        # Unsorted Source Nodes: [], Original ATen: [aten.relu]
        k.run(buf0, stream=stream0)
    """
    first, second, third = (call.provenance for call in follow(body).calls)
    assert first == Provenance(fx_nodes=["a", "b"], aten_ops=["aten.add", "aten.mm"])
    assert second is None
    assert third == Provenance(aten_ops=["aten.relu"], source_lines=["/home/me/model.py:12"])
    assert read_comment("# an ordinary remark") is None


def test_a_line_that_deletes_may_launch() -> None:
    body = """
        n, a = args
        args.clear()
        del a
        stream0 = get_raw_stream(0)
        del n; k(1, stream0)
    """
    (call,) = follow(body).calls
    assert call.arguments == [Size("1", 1), None]


def test_a_block_that_only_deletes() -> None:
    body = """
        n, a = args
        if n > 1:
            del a
        k(1)
    """
    (call,) = follow(body).calls
    assert call.arguments == [Size("1", 1)]


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("lines", [1, 7])
def test_in_pieces_as_in_one(name: str, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_LINES", 1_000_000)
    whole = parse_module(GRAPHS[name])
    monkeypatch.setattr(pieces, "PIECE_LINES", lines)
    pauses: list[None] = []
    assert parse_module(GRAPHS[name], pause=lambda: pauses.append(None)) == whole
    assert len(pauses) >= 3


def test_a_statement_over_several_lines() -> None:
    text = modules()["plain/pointwise.graph1.py"]
    for indent in ("", " " * 40):
        broken = text.replace("= empty_strided_cuda((", f"= empty_strided_cuda((\n{indent}")
        assert broken != text
        assert parse_module(broken) == parse_module(text)
