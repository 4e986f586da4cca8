"""Index checks in kernels' sources, written out by hand in the forms that Inductor gives them."""

from kernel_data import modules

from instrumented_backend.kernels.index_bounds import IndexBound, index_bounds
from instrumented_backend.kernels.parse import GraphSource

TRITON = """
    tmp0 = tl.load(in_ptr0 + (x1), None, eviction_policy='evict_last')
    tmp10 = tl.load(in_ptr2 + (x0), None)
    tmp1 = tl.full([XBLOCK], 2, tl.int32)
    tmp2 = tmp0 + tmp1
    tmp3 = tl.full([XBLOCK], 50257, tl.int32)
    tmp4 = tmp2 + tmp3
    tmp5 = tmp2 < 0
    tmp6 = tl.where(tmp5, tmp4, tmp2)
    tl.device_assert((0 <= tmp6) & (tmp6 < 50257), "index out of bounds: 0 <= tmp6 < 50257")
    tmp7 = tl.load(in_ptr1 + (x0 + 768*tmp6), None)
"""

CPP = """
extern "C" void kernel(const int64_t* in_ptr0, const float* in_ptr1, float* out_ptr0) {
    auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
    auto tmp1 = 7L;
    auto tmp9 =
    [&]
    {
        __at_align__ std::array<int64_t, 16> tmpbuf;
        tmp0.store(tmpbuf.data(), static_cast<int64_t>(8L));
        return tmpbuf;
    }
    ()
    ;
    AOTI_TORCH_CHECK((0 <= tmp9) & (tmp9 < 100L), "index out of bounds: 0 <= tmp9[x1] < 100L");
    auto tmp12 = in_ptr1[static_cast<int64_t>(x1 + 16L*tmp9[x1])];
    auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
    TORCH_CHECK(tmp0 < ks0, "index out of bounds: tmp0 < ks0");
}
"""


def test_triton_offsets_lower_the_bound() -> None:
    # 50257 rows, and 2 is added to the index: 0 to 50254 are valid. Floats are no indices here.
    found = index_bounds(TRITON, ["in_ptr0", "in_ptr1", "in_ptr2"])
    assert found == {"in_ptr0": [IndexBound("50257", 2)]}
    assert found["in_ptr0"][0].values({}) == 50255


# The backward of an embedding: added to rows of the weight's gradient, unchecked; a padding of -1.
UNCHECKED = """
    tmp0 = tl.load(in_ptr0 + (x1), None, eviction_policy='evict_last')
    tmp7 = tl.load(in_ptr1 + (x2), None)
    tmp1 = tl.full([1], {size}, tl.int32)
    tmp2 = tmp0 + tmp1
    tmp3 = tmp0 < 0
    tmp4 = tl.where(tmp3, tmp2, tmp0)
    tmp5 = tl.full([1], -1, tl.int64)
    tmp6 = tmp0 == tmp5
    tmp8 = tl.full([1], 0.0, tl.float32)
    tmp9 = tl.where(tmp6, tmp8, tmp7)
    tl.atomic_add(out_ptr0 + (x0 + 768*tmp4), tmp9, None, sem='relaxed')
"""


def test_triton_without_a_check_tells_by_what_negative_indices_become() -> None:
    pointers = ["in_ptr0", "in_ptr1", "out_ptr0"]
    found = index_bounds(UNCHECKED.format(size=50257), pointers)
    assert found == {"in_ptr0": [IndexBound("50257", 0)]}
    symbolic = UNCHECKED.replace("tl.full([1], {size}, tl.int32)", "ks0")
    assert index_bounds(symbolic, pointers) == {"in_ptr0": [IndexBound("ks0", 0)]}
    other = UNCHECKED.format(size=50257).replace("tmp0 < 0", "tmp0 < 1")
    assert index_bounds(other, pointers) == {}


def test_cpp_through_a_lambda_and_a_symbol() -> None:
    found = index_bounds(CPP, ["in_ptr0", "in_ptr1", "out_ptr0"])
    assert found == {"in_ptr0": [IndexBound("100", 0), IndexBound("ks0", 0)]}
    assert found["in_ptr0"][1].values({"ks0": 12}) == 12
    assert found["in_ptr0"][1].values({}) is None


def test_a_bound_is_never_below_one_value() -> None:
    assert IndexBound("3", 5).values({}) == 1


def test_nothing_to_find() -> None:
    assert index_bounds("tmp0 = tl.load(in_ptr0 + (x0), xmask)", ["in_ptr0"]) == {}
    assert index_bounds(TRITON, []) == {}


def test_generated_kernels() -> None:
    """conv_bn: a loss over 10 classes, and the 4 places in a pooling window."""
    found = {}
    for graph in ("graph1", "graph2"):
        source = GraphSource(modules()[f"plain/conv_bn.{graph}.py"])
        found[graph] = {
            bound.values({})
            for name, text in source.sources.items()
            for bounds in index_bounds(text, source.facts(name).accesses).values()
            for bound in bounds
        }
    assert found == {"graph1": {10}, "graph2": {4}}
