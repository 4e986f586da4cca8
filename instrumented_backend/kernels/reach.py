"""How many elements of each buffer a Triton kernel reaches, from its own source.

For a kernel's module by itself, which says nothing of the buffers' sizes. The index arithmetic is
followed with intervals: ``x0 = xindex % 7`` is 0 to 6. Masks are not looked at, so that a buffer
may come out larger than it has to be, never smaller.
"""

import ast
from dataclasses import dataclass, field

from instrumented_backend.kernels.facts import NUMELS
from instrumented_backend.kernels.index_bounds import index_bounds
from instrumented_backend.kernels.triton_syntax import arguments_of, dispatch, last_name

Interval = tuple[int, int]

_INDICES = {
    "xindex": "xnumel",
    "yindex": "ynumel",
    "zindex": "znumel",
    "rindex": "rnumel",
    "r0_index": "r0_numel",
    "r1_index": "r1_numel",
}
_BLOCKS = ("make_block_ptr", "make_tensor_descriptor", "_experimental_make_tensor_descriptor")
_SHAPING = ("broadcast_to", "multiple_of", "max_contiguous", "reshape", "trans")


@dataclass
class Reach:
    """Elements by pointer, None where they are not known; and the numels by name."""

    elements: dict[str, int | None] = field(default_factory=dict)
    numels: dict[str, int] = field(default_factory=dict)
    index_values: dict[str, int] = field(default_factory=dict)  # how many are valid, by pointer


def reach(source: str, name: str, pointers: list[str], hints: dict[str, int]) -> Reach:
    """Of the function ``name``; ``hints`` are numels for those that the body does not fix."""
    found = Reach(numels=dict(hints))
    for pointer, bounds in index_bounds(source, pointers).items():
        counts = [bound.values(hints) for bound in bounds]
        known = [count for count in counts if count is not None]
        if known:
            found.index_values[pointer] = min(known)
    functions = {
        node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)
    }
    before, branches, after = dispatch(functions[name].body)
    follower = _Follower(found, set(pointers), functions)
    follower.follow(before)
    for branch in branches:  # the sub-kernels of a combo
        follower.follow(branch)
        follower.follow(after)
    for node in ast.walk(functions[name]):
        if isinstance(node, ast.Name) and node.id in pointers:
            found.elements.setdefault(node.id, None)  # used in a way that is not followed
    return found


class _Follower:
    def __init__(
        self, found: Reach, pointers: set[str], functions: dict[str, ast.FunctionDef]
    ) -> None:
        self.found = found
        self.pointers = {name: name for name in pointers}  # a variable → its parameter
        self.functions = functions
        self.values: dict[str, Interval | None] = {}

    def follow(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self._assign(statement.targets[0].id, statement.value)
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                if statement.value is not None:
                    self._assign(statement.target.id, statement.value)
            elif isinstance(statement, ast.Expr):
                self._value(statement.value)
            for block in ("body", "orelse"):
                self.follow(getattr(statement, block, []))

    def _assign(self, name: str, node: ast.expr) -> None:
        if isinstance(node, ast.Name) and node.id in self.pointers:
            self.pointers[name] = self.pointers[node.id]
        value = self._value(node)
        if name in NUMELS and value is not None and value[0] == value[1]:
            self.found.numels[name] = value[1]
        numel = self.found.numels.get(_INDICES.get(name, ""))
        if numel is not None:
            value = (0, numel - 1)
        self.values[name] = value

    def _value(self, node: ast.expr) -> Interval | None:
        if isinstance(node, ast.Constant):
            return (node.value, node.value) if type(node.value) is int else None
        if isinstance(node, ast.Name):
            numel = self.found.numels.get(node.id)
            return self.values.get(node.id) if numel is None else (numel, numel)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._value(node.operand)
            return None if value is None else (-value[1], -value[0])
        if isinstance(node, ast.Subscript):
            return self._value(node.value)
        if isinstance(node, ast.BinOp):
            left, right = self._value(node.left), self._value(node.right)
            if isinstance(node.op, ast.Mod) and right is not None and right[0] > 0:
                return _remainder(left, right[1])
            return None if left is None or right is None else _combine(node.op, left, right)
        return self._call(node) if isinstance(node, ast.Call) else None

    def _call(self, call: ast.Call) -> Interval | None:
        name = last_name(call.func)
        body = self.functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
        if body is not None and "_body_" in body.name:
            self._enter(body, call)
            return None
        if name is not None and name.startswith(("load", "store", "atomic_")) and call.args:
            if isinstance(call.func, ast.Attribute):
                self._value(call.func.value)  # a descriptor's own method
            self._access(call.args[0])
            for argument in call.args[1:]:
                self._value(argument)
            return None
        if name in _BLOCKS:
            self._block(call)
            return None
        if name == "device_assert":
            self._check(call)
            return None
        if name == "where" and len(call.args) == 3:
            return _hull(self._value(call.args[1]), self._value(call.args[2]))
        if name in ("minimum", "maximum") and len(call.args) == 2:
            left, right = self._value(call.args[0]), self._value(call.args[1])
            if left is None or right is None:
                return None
            choose = min if name == "minimum" else max
            return choose(left[0], right[0]), choose(left[1], right[1])
        if name in ("div_floor_integer", "remainder_integer") and len(call.args) == 2:
            left, right = self._value(call.args[0]), self._value(call.args[1])
            if right is None or right[0] <= 0:
                return None
            if name == "remainder_integer":
                return _remainder(left, right[1])
            return None if left is None else _combine(ast.FloorDiv(), left, right)
        if name == "full" and len(call.args) > 1:
            return self._value(call.args[1])
        if name in (*_SHAPING, "to") and isinstance(call.func, ast.Attribute):
            is_function = isinstance(call.func.value, ast.Name) and call.func.value.id == "tl"
            if not is_function:
                return self._value(call.func.value)
            return self._value(call.args[0]) if call.args else None
        for argument in call.args:
            self._value(argument)
        return None

    def _enter(self, function: ast.FunctionDef, call: ast.Call) -> None:
        """A combo's sub-kernel in a function of its own (from torch 2.15)."""
        names = [argument.arg for argument in arguments_of(function)]
        bound = list(zip(names, call.args, strict=False))
        inside = _Follower(self.found, set(), self.functions)
        for name, node in bound:
            if isinstance(node, ast.Name) and node.id in self.pointers:
                inside.pointers[name] = self.pointers[node.id]
        inside.follow(function.body)

    def _check(self, call: ast.Call) -> None:
        """``tl.device_assert((0 <= tmp4) & (tmp4 < 50257), ...)`` bounds ``tmp4``."""
        for node in ast.walk(call.args[0]) if call.args else ():
            if (
                isinstance(node, ast.Compare)
                and isinstance(node.left, ast.Name)
                and isinstance(node.ops[0], ast.Lt)
            ):
                limit = self._value(node.comparators[0])
                if limit is not None and self.values.get(node.left.id) is None:
                    self.values[node.left.id] = (0, limit[1] - 1)

    def _access(self, address: ast.expr) -> None:
        if isinstance(address, ast.Name):
            pointer, index = address.id, (0, 0)
        elif isinstance(address, ast.BinOp) and isinstance(address.left, ast.Name):
            pointer, index = address.left.id, self._value(address.right)  # type: ignore[assignment]
        else:
            self._value(address)  # a block's
            return
        self._reach(pointer, index)

    def _block(self, call: ast.Call) -> None:
        """A block pointer or a descriptor: the whole that it is a block of."""
        given = dict(zip(("base", "shape", "strides"), call.args, strict=False))
        given |= {word.arg: word.value for word in call.keywords if word.arg}
        base, shape, strides = (given.get(name) for name in ("base", "shape", "strides"))
        index: Interval | None = (0, 0)
        if isinstance(base, ast.BinOp):
            index = self._value(base.right)
            base = base.left
        if not isinstance(base, ast.Name):
            return
        lists = isinstance(shape, ast.List | ast.Tuple) and isinstance(
            strides, ast.List | ast.Tuple
        )
        for size, step in zip(shape.elts, strides.elts, strict=False) if lists else ():  # type: ignore[union-attr]
            n, stride = self._value(size), self._value(step)
            if index is None or n is None or stride is None:
                index = None
                break
            index = index[0], index[1] + max(n[1] - 1, 0) * stride[1]
        self._reach(base.id, index if lists else None)

    def _reach(self, pointer: str, index: Interval | None) -> None:
        """Elements up to and with the last that ``index`` may be."""
        if pointer not in self.pointers:
            return
        pointer = self.pointers[pointer]
        elements = self.found.elements
        known = elements.get(pointer, 0)
        elements[pointer] = None if known is None or index is None else max(known, index[1] + 1)


def _remainder(left: Interval | None, divisor: int) -> Interval:
    if left is not None and left[0] >= 0 and left[1] < divisor:
        return left
    return 0, divisor - 1


def _hull(left: Interval | None, right: Interval | None) -> Interval | None:
    if left is None or right is None:
        return None
    return min(left[0], right[0]), max(left[1], right[1])


def _combine(operation: ast.operator, left: Interval, right: Interval) -> Interval | None:
    if isinstance(operation, ast.Add):
        return left[0] + right[0], left[1] + right[1]
    if isinstance(operation, ast.Sub):
        return left[0] - right[1], left[1] - right[0]
    if isinstance(operation, ast.Mult):
        corners = [a * b for a in left for b in right]
        return min(corners), max(corners)
    if isinstance(operation, ast.FloorDiv) and right[0] > 0:
        corners = [a // b for a in left for b in right]
        return min(corners), max(corners)
    return None
