"""Arithmetic in generated code, worked out by hand."""

from instrumented_backend.kernels.expressions import evaluate


def test_evaluate() -> None:
    assert evaluate("2*ks0 + 1", {"ks0": 5}) == 11
    assert evaluate("static_cast<int64_t>(64L)", {}) == 64
    assert evaluate("(c10::div_floor_integer(ks0, 2L)) + -1L", {"ks0": 5}) == 1
    assert evaluate("std::max(ks0, 7L)", {"ks0": 5}) == 7
    assert evaluate("div_floor_integer(ks0, 0)", {"ks0": 5}) is None
    assert evaluate("ks1", {"ks0": 5}) is None
    assert evaluate("ks0 // 0", {"ks0": 5}) is None
    assert evaluate("f(2)", {}) is None and evaluate("(", {}) is None
