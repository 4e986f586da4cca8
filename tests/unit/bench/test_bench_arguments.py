"""Random arguments: shapes and strides as asked, never all zero, integers in range."""

import pytest
import torch
from kernel_data import modules

from instrumented_backend.bench.arguments import (
    in_range,
    input_bounds,
    names_in_order,
    random_strided,
)
from instrumented_backend.kernels.parse import GraphSource


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float32, torch.bfloat16, torch.float64, torch.float8_e4m3fn, torch.complex64),
        *(torch.bool, torch.int8, torch.uint8, torch.int64, torch.uint16),
    ],
)
def test_every_dtype(dtype: torch.dtype) -> None:
    made = random_strided((4, 50), (64, 1), dtype)
    assert made.shape == (4, 50) and made.stride() == (64, 1) and made.dtype == dtype
    assert made.untyped_storage().nbytes() == (3 * 64 + 50) * dtype.itemsize
    assert made.to(torch.complex64).abs().count_nonzero() > 0


def test_integers_stay_below_the_bound() -> None:
    made = random_strided((10_000,), (1,), torch.int64, bound=100)
    assert made.min() == 0 and made.max() == 99
    assert random_strided((10_000,), (1,), torch.int64).unique().tolist() == [0, 1]
    assert random_strided((100,), (1,), torch.int8, bound=1000).min() >= 0


def test_no_elements_and_no_dimensions() -> None:
    assert random_strided((0, 3), (3, 1)).shape == (0, 3)
    assert random_strided((), ()).shape == ()


GET_ARGS = """
def get_args():
    from torch._dynamo.testing import rand_strided
    global _tensor_constant0
    _tensor_constant0 = rand_strided((3, ), (1, ), device='cpu', dtype=torch.int64)
    _shared_storage_0 = rand_strided((8,), (1,), device='cpu', dtype=torch.float32)
    arg0_1 = torch.as_strided(_shared_storage_0, (4, ), (1, ))
    arg1_1 = 5
    arg2_1 = rand_strided((4, ), (1, ), device='cpu', dtype=torch.int64)
    return [arg0_1, arg1_1, arg2_1]


def benchmark_compiled_module(args, times=10, repeat=10):
    fn = lambda: call(list(args))
"""


def test_names_of_the_inputs() -> None:
    names = names_in_order(GET_ARGS)
    assert names == [{"_tensor_constant0"}, {"_shared_storage_0", "arg0_1"}, {"arg2_1"}]
    make = in_range(names, {"arg2_1": 7, "_tensor_constant0": 3})
    assert make((1000,), (1,), dtype=torch.int64).max() == 2
    assert make((1000,), (1,)).dtype == torch.float32
    assert make((1000,), (1,), dtype=torch.int64).max() == 6
    assert make((1000,), (1,), dtype=torch.int64).max() == 1  # a call that is not in the text


def test_bounds_reach_the_graphs_inputs() -> None:
    """conv_bn: the labels are its last input; a pooling's indices come back in the backward."""
    forward = input_bounds(GraphSource(modules()["plain/conv_bn.graph1.py"]))
    backward = input_bounds(GraphSource(modules()["plain/conv_bn.graph2.py"]))
    assert forward == {"primals_18": 10} and backward == {"getitem_3": 4}
