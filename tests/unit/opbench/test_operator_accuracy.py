"""Results that agree, and results that don't."""

from typing import Any

import pytest
import torch
from opbench import accuracy
from opbench.accuracy import compare

NAN, INF = float("nan"), float("inf")


def tensor(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize(
    "actual, expected",
    [
        (tensor(1, 2), tensor(1, 2)),
        (tensor(1, 2.001), tensor(1, 2)),
        (tensor(NAN, INF, -INF, 1), tensor(NAN, INF, -INF, 1)),
        (tensor(0, 0), tensor(0, 0)),
        (tensor(), tensor()),
        (tensor(1, 2, dtype=torch.complex64) * 1j, tensor(1, 2, dtype=torch.complex64) * 1j),
        (tensor(60000, 60000, dtype=torch.float16), tensor(60000, 60000, dtype=torch.float16)),
        ([tensor(1), (tensor(2), None)], [tensor(1), (tensor(2), None)]),
        (tensor(1, 0, dtype=torch.bool), tensor(1, 0, dtype=torch.bool)),
    ],
)
def test_the_same(actual: Any, expected: Any) -> None:
    assert compare(actual, expected) == "ok"


@pytest.mark.parametrize(
    "actual, expected, complaint",
    [
        (tensor(1, -2), tensor(1, 2), "cosine -0.6000"),  # (1 - 4) / 5
        (tensor(1, -2), tensor(1, 2), "largest difference 4"),
        (tensor(2, 4), tensor(1, 2), "norm 4.472 for 2.236"),  # the cosine is 1
        (tensor(0, 0), tensor(0, 3), "largest difference 3"),
        (tensor(NAN, 2), tensor(1, 2), "1 NaN instead of 0"),
        (tensor(INF, 2), tensor(-INF, 2), "infinities"),
        (tensor(1, 2, 3), tensor(1, 2), "shape (3,) instead of (2,)"),
        (tensor(1, dtype=torch.float16), tensor(1), "torch.float16 instead of torch.float32"),
        (
            tensor(1, 5, dtype=torch.int64),
            tensor(1, 2, dtype=torch.int64),
            "1 of 2 elements differ; largest difference 3",
        ),
        ([tensor(1), tensor(2)], [tensor(1), tensor(-2)], "result 1: cosine -1.0000"),
        ([tensor(1)], [tensor(1), tensor(1)], "1 results instead of 2"),
    ],
)
def test_different(actual: Any, expected: Any, complaint: str) -> None:
    assert complaint in compare(actual, expected)


def test_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "_PIECE", 4)
    expected = torch.arange(1.0, 23.0).reshape(2, 11).t()  # not contiguous
    assert compare(expected.clone(), expected) == "ok"
    wrong = expected.clone()
    wrong[10, 1] = -22  # the last of 22
    # Squares: 22·23·45 / 6 = 3795; dot: 3795 - 2·484 = 2827; 2827 / 3795 = 0.7449.
    assert compare(wrong, expected) == "cosine 0.7449, norm 61.6 for 61.6; largest difference 44"
