"""What is known of the process without torch's help."""

import pytest
import torch

from instrumented_backend.observe.native.structs import GpuFunctions
from instrumented_backend.torch_compat import machine


def test_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert machine.rank() == 0
    monkeypatch.setenv("RANK", "3")
    assert machine.rank() == 3
    monkeypatch.setenv("RANK", "²")
    assert machine.rank() == 0


def test_the_functions_of_cuda_that_are_called() -> None:
    """Two are PyTorch's own, in 2.11 to 2.15; a build without CUDA has none."""
    found = machine.cuda_functions(*GpuFunctions.NAMES.values())
    assert (found is not None) == (torch.version.cuda is not None)
    assert found is None or len(set(found)) == len(GpuFunctions.NAMES)
    assert machine.cuda_functions("aoti_torch_no_such_function") is None
