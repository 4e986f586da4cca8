"""Sizes in generated code: arithmetic of whole numbers and symbols."""

import ast
import operator
import re
from collections.abc import Callable, Mapping

OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: lambda left, right: left << min(right, 62),
}

_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "div_floor_integer": operator.floordiv,
    "max": max,
    "min": min,
}


def evaluate(text: str, sizes: Mapping[str, int]) -> int | None:
    """``"2*ks0"`` with ``{"ks0": 5}`` → 10; None for what is not known or not arithmetic."""
    plain = re.sub(r"\b(\d+)L+\b", r"\1", text.replace("static_cast<int64_t>", ""))
    plain = plain.replace("c10::", "").replace("std::", "")
    try:
        return _number(ast.parse(plain.strip(), mode="eval").body, sizes)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return None


def _number(node: ast.expr, sizes: Mapping[str, int]) -> int | None:
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.Name):
        return sizes.get(node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        left, right = _number(node.left, sizes), _number(node.right, sizes)
        if left is not None and right is not None:
            return OPERATIONS[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        operand = _number(node.operand, sizes)
        return None if operand is None else -operand
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2:
        function = _FUNCTIONS.get(node.func.id)
        left, right = (_number(argument, sizes) for argument in node.args)
        if function is not None and left is not None and right is not None:
            return function(left, right)
    return None
