"""C++ kernels, against what can be counted by hand."""

import textwrap

from kernel_data import graph_module, modules, only

from instrumented_backend.kernels.parse import parse_module
from instrumented_backend.records import KernelRecord


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
