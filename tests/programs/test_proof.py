"""What the benchmarks read out of compilations."""

import pytest
import torch
from proof.kernel_bytes import counting
from torch._inductor.utils import fresh_cache


@pytest.mark.full
def test_inductors_bytes_of_a_kernel(fresh: None) -> None:
    x, y = torch.ones(1000, 777), torch.ones(1000, 777)
    with fresh_cache(), counting("cpu") as found:
        torch.compile(lambda x, y: (x + y).sin() * 2, backend="inductor")(x, y)
    # Two operands and a result of float32.
    assert list(found.values()) == [[3 * 4 * 777_000]]
