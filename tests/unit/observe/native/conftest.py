"""A GPU that is not there, for the op meter's native part."""

from collections.abc import Iterator
from typing import Any

import fake_gpu
import pytest
from fake_gpu import KEY, OTHER, FakeGpu


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return fake_gpu.build(tmp_path_factory.mktemp("fake-gpu"))


@pytest.fixture
def gpu(op_meter: Any, library: Any) -> Iterator[FakeGpu]:
    fake = FakeGpu(library)
    for key in (KEY, OTHER):
        op_meter.op_meter_gpu(key, 0, fake.functions)
    yield fake
    op_meter.op_meter_close()
    op_meter.op_meter_clear()
    op_meter.op_meter_gpu_forget()
