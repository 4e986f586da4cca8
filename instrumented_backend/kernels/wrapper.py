"""The wrapper function of a generated graph module: which buffer goes to which kernel.

A module's ``call`` is straight-line Python. It is followed statement by statement, by `ast` and
without running anything: what each name stands for (its shape and dtype), and what is launched
with it.
"""

import ast
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from instrumented_backend.kernels.expressions import OPERATIONS
from instrumented_backend.kernels.provenance import Provenance, read_comment


class Size(NamedTuple):
    """A size or an argument: ``exact`` where it is a number, ``hint`` what it was at compile time.

    ``hint`` is for symbols: the value in the module's own benchmark inputs.
    """

    text: str
    exact: int | None = None
    hint: int | None = None

    @property
    def known(self) -> int | None:
        return self.hint if self.exact is None else self.exact


@dataclass
class Tensor:
    """A buffer, as far as the text says; None is unknown. Two names may stand for one."""

    name: str
    shape: tuple[Size, ...] | None = None
    dtype: str | None = None
    parts: list["Tensor"] = field(default_factory=list)  # of a tuple that an op returned

    @property
    def numel(self) -> Size | None:
        return None if self.shape is None else _numel(self.shape)


@lru_cache(maxsize=256)  # a module has few shapes
def _numel(shape: tuple[Size, ...]) -> Size:
    exact = [size.exact for size in shape]
    known = [size.known for size in shape]
    return Size(
        " * ".join(size.text for size in shape) or "1",
        None if None in exact else math.prod(exact),  # type: ignore[arg-type]
        None if None in known else math.prod(known),  # type: ignore[arg-type]
    )


Value = Tensor | Size | None


@dataclass
class KernelCall:
    """One launch of a kernel, or one extern call."""

    kernel: str
    arguments: list[Value]
    keywords: dict[str, Any]
    result: Tensor | None
    provenance: Provenance | None
    listed: list[Tensor] = field(default_factory=list)  # in lists, after the first of each


class Wrapper:
    """Follows the functions of one graph module and lists their launches in `calls`.

    ``in_order``: that is the order in which they run, each of them once.
    """

    def __init__(self, kernels: Iterable[str]) -> None:
        self.kernels = set(kernels)
        self.calls: list[KernelCall] = []
        self.in_order = True
        self._values: dict[str, Value] = {}
        self._inputs: dict[str, Value] = {}
        self._comment: Provenance | None = None

    # --- What a module's benchmark harness tells ------------------------------------------------

    def read_inputs(self, function: ast.FunctionDef) -> None:
        """``get_args`` makes inputs of the graph's shapes and dtypes, its symbols as numbers."""
        for statement in function.body:
            if not isinstance(statement, ast.Assign):
                continue
            target, value = statement.targets[0], statement.value
            if not isinstance(target, ast.Name):
                continue
            if isinstance(value, ast.Constant) and type(value.value) is int:
                self._inputs[target.id] = Size(target.id, None, value.value)
            elif isinstance(value, ast.Call) and _dotted(value.func) == "rand_strided":
                tensor = self._allocated(target.id, value, 0, None)
                dtype = next((word.value for word in value.keywords if word.arg == "dtype"), None)
                tensor.dtype = _dtype(dtype)
                self._inputs[target.id] = tensor

    # --- Statements -----------------------------------------------------------------------------

    def follow_piece(self, statements: Iterable[ast.stmt], lines: list[str]) -> None:
        """Follow statements that are in these lines; comments there belong to launches."""
        comments: dict[int, Provenance] = {}
        for i, line in enumerate(lines, start=1):
            text = line.lstrip()
            provenance = read_comment(text) if text.startswith("#") else None
            if provenance is not None:
                comments[i] = provenance
        self._follow(statements, comments)
        for provenance in comments.values():
            self._say(provenance)  # about the next piece's first launch

    def _follow(self, statements: Iterable[ast.stmt], comments: dict[int, Provenance]) -> None:
        for statement in statements:
            for line in [line for line in comments if line <= statement.lineno]:
                self._say(comments.pop(line))
            if isinstance(statement, ast.Assign):
                self._assign(statement)
            elif isinstance(statement, ast.Expr):
                self._expression(statement.value)
            else:
                before = len(self.calls)
                for block in ("body", "orelse", "finalbody"):
                    self._follow(getattr(statement, block, ()), comments)
                if not isinstance(statement, ast.With | ast.Try) and self.calls[before:]:
                    self.in_order = False  # a branch, a loop, a function

    def _say(self, provenance: Provenance) -> None:
        """A comment was met: it is about the next launch."""
        if self._comment is not None and not provenance.fx_nodes and not provenance.aten_ops:
            provenance.fx_nodes = self._comment.fx_nodes
            provenance.aten_ops = self._comment.aten_ops
        if self._comment is not None:
            provenance.source_lines = self._comment.source_lines + provenance.source_lines
        self._comment = provenance

    def _assign(self, statement: ast.Assign) -> None:
        target, value = statement.targets[0], statement.value
        if isinstance(target, ast.Tuple | ast.List):
            names = [item.id for item in target.elts if isinstance(item, ast.Name)]
            if isinstance(value, ast.Name) and value.id == "args":
                for name in names:
                    self._values[name] = self._input(name)
            else:
                result = self._expression(value)
                parts = [Tensor(name) for name in names]
                if isinstance(result, Tensor):
                    result.parts += parts
                self._values.update(zip(names, parts, strict=True))
            return
        if not isinstance(target, ast.Name):
            self._expression(value)
            return
        result = self._expression(value)
        if isinstance(result, Tensor) and result.name == "":
            result.name = target.id
        if isinstance(result, Size) and result.exact is None and not isinstance(value, ast.BinOp):
            # `s77 = arg0_1`: what is known is known of the symbol.
            result = Size(target.id, None, result.hint)
        before = self._values.get(target.id)
        if (
            isinstance(before, Tensor)
            and not isinstance(result, Tensor)
            and _is_passed_on(target.id, value)
        ):
            return  # arg0_1 = copy_if_misaligned(arg0_1), from torch 2.15
        self._values[target.id] = result

    def _constant(self, name: str) -> Value:
        """A tensor of the module's own, such as a frozen weight."""
        known = self._inputs.get(name)
        return known if isinstance(known, Tensor) else None

    def _input(self, name: str) -> Value:
        known = self._inputs.get(name)
        if isinstance(known, Tensor):
            # Its shape is the one compiled for; an assertion in `call` may give it in symbols.
            return Tensor(name, known.shape, known.dtype)
        return known if known is not None else Tensor(name)

    # --- Expressions ----------------------------------------------------------------------------

    def _expression(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Name):
            return self._values[node.id] if node.id in self._values else self._constant(node.id)
        if isinstance(node, ast.Subscript):
            whole = self._expression(node.value)
            if isinstance(whole, Tensor):
                part = Tensor("")
                whole.parts.append(part)
                return part
            return None
        return self._size(node)

    def _call(self, call: ast.Call) -> Value:
        name = _dotted(call.func)
        if name is None:
            # reinterpret_tensor(...).data_ptr(); another is (f(...)).run(...)
            pointer = isinstance(call.func, ast.Attribute) and call.func.attr == "data_ptr"
            return self._expression(call.func.value) if pointer else None  # type: ignore[attr-defined]
        plain, _, method = name.rpartition(".")
        if name in self.kernels or (method == "run" and plain in self.kernels):
            self._launch(plain if name not in self.kernels else name, call, None)
            return None
        if name.startswith("empty_strided"):
            return self._allocated("", call, 0, 2)
        if name == "reinterpret_tensor" or name.endswith("._reinterpret_tensor"):
            base = self._expression(call.args[0]) if call.args else None
            view = self._allocated("", call, 1, None)
            view.dtype = base.dtype if isinstance(base, Tensor) else None
            view.name = base.name if isinstance(base, Tensor) else ""
            return view
        if name.endswith("alloc_from_pool"):
            return self._allocated("", call, 3, 2)
        if name.startswith("assert_size_stride") or name == "assert_tensor_metadata":
            self._assertion(call, grouped=name.endswith("_grouped"))
            return None
        if (name == "c_void_p" or name.startswith("triton.tools.")) and call.args:
            return self._expression(call.args[0])  # a pointer, or a descriptor of a tensor
        if method == "data_ptr":
            return self._values.get(plain)
        if is_extern(name):
            result = Tensor("")
            self._launch(name, call, result)
            return result
        if method in ("size", "item", "stride"):
            return Size(name)
        if name in _NO_SIZE:
            return None
        return self._size(call)

    def _allocated(self, name: str, call: ast.Call, shape: int, dtype: int | None) -> Tensor:
        tensor = Tensor(name)
        if len(call.args) > shape:
            tensor.shape = self._shape(call.args[shape])
        if dtype is not None and len(call.args) > dtype:
            tensor.dtype = _dtype(call.args[dtype])
        return tensor

    def _shape(self, node: ast.expr) -> tuple[Size, ...] | None:
        if not isinstance(node, ast.Tuple | ast.List):
            return None
        return tuple(self._size(item) for item in node.elts)

    def _assertion(self, call: ast.Call, grouped: bool) -> None:
        """``assert_size_stride(buf, shape, stride)``: the one place that has an input's shape."""
        if len(call.args) < 2:
            return
        tensors, shapes = call.args[0], call.args[1]
        pairs: Iterable[tuple[ast.expr, ast.expr]] = [(tensors, shapes)]
        if grouped and isinstance(tensors, ast.Tuple) and isinstance(shapes, ast.Tuple):
            pairs = zip(tensors.elts, shapes.elts, strict=False)
        for tensor, shape in pairs:
            value = self._values.get(tensor.id) if isinstance(tensor, ast.Name) else None
            if not isinstance(value, Tensor):
                continue
            asserted = self._shape(shape)  # () is a shape, too
            value.shape = value.shape if asserted is None else asserted
            if len(call.args) > 3:  # assert_tensor_metadata, from torch 2.15
                value.dtype = _dtype(call.args[3]) or value.dtype

    def _launch(self, name: str, call: ast.Call, result: Tensor | None) -> None:
        keywords: dict[str, Any] = {}
        for word in call.keywords:
            if word.arg == "out":
                out = self._expression(word.value)
                result = out if isinstance(out, Tensor) else result
            elif word.arg is not None:
                keywords[word.arg] = _constant(word.value)
        arguments: list[Value] = []
        listed: list[Tensor] = []
        for i, argument in enumerate(call.args):
            if isinstance(argument, ast.List | ast.Tuple):
                # A list of tensors, or of numbers such as a stride.
                items = [self._expression(item) for item in argument.elts]
                tensors = [item for item in items if isinstance(item, Tensor)]
                arguments.append(tensors[0] if tensors else None)
                listed += tensors[1:]
                keywords[f"#{i}"] = _constant(argument)
            else:
                arguments.append(self._expression(argument))
                if isinstance(argument, ast.Constant):
                    keywords[f"#{i}"] = argument.value
        provenance, self._comment = self._comment, None
        self.calls.append(KernelCall(name, arguments, keywords, result, provenance, listed))

    # --- Sizes ----------------------------------------------------------------------------------

    def _size(self, node: ast.expr) -> Size:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return Size(str(node.value), node.value)
        text = node.id if isinstance(node, ast.Name) else ast.unparse(node)
        return Size(text, None, self._hint(node))

    def _hint(self, node: ast.expr) -> int | None:
        """The value of an expression of symbols at the sizes that the module was compiled for."""
        if isinstance(node, ast.Constant):
            return node.value if type(node.value) is int else None
        if isinstance(node, ast.Name):
            value = self._values.get(node.id)
            return value.known if isinstance(value, Size) else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            operand = self._hint(node.operand)
            return None if operand is None else -operand
        if isinstance(node, ast.BinOp):
            operation = OPERATIONS.get(type(node.op))
            left, right = self._hint(node.left), self._hint(node.right)
            if operation is None or left is None or right is None:
                return None
            try:
                return operation(left, right)
            except (ArithmeticError, ValueError):
                return None
        if isinstance(node, ast.Call) and _dotted(node.func) in ("max", "min") and node.args:
            values = [self._hint(argument) for argument in node.args]
            known = [value for value in values if value is not None]
            if len(known) == len(values):
                return (max if _dotted(node.func) == "max" else min)(known)
        return None


_EXTERN = ("extern_kernels.", "aten.", "torch.ops.", "inductor_ops.", "_quantized.")
_NO_KERNEL = (
    "torch.ops.inductor._alloc_from_pool",
    "torch.ops.inductor._reinterpret_tensor",
    "inductor_ops._alloc_from_pool",
    "inductor_ops._reinterpret_tensor",
)

# In each call, or before each launch: their text is not wanted, and takes long to make.
_NO_SIZE = ("args.clear", "get_raw_stream", "torch.cuda.set_device")


def is_extern(name: str) -> bool:
    """Does the wrapper call a kernel here that Inductor did not generate?"""
    return name.startswith(_EXTERN) and name not in _NO_KERNEL


# Extern kernels that are Python functions or have names of Inductor's own.
_OPS_OF = {
    "extern_kernels.bias_addmm": "aten::addmm",
    "extern_kernels.mm_dtype": "aten::mm",
    "extern_kernels.bmm_dtype": "aten::bmm",
    "extern_kernels.conv1x1_via_mm": "aten::matmul",
}
_NAMESPACES = {
    "extern_kernels": "aten",
    "aten": "aten",
    "inductor_ops": "inductor",
    "_quantized": "_quantized",
}


def op_of(kernel: str) -> str:
    """The op that an extern call dispatches: ``torch.ops.aten.sort.default`` → ``aten::sort``."""
    if kernel in _OPS_OF:
        return _OPS_OF[kernel]
    namespace, _, rest = kernel.removeprefix("torch.ops.").partition(".")
    if not kernel.startswith("torch.ops."):
        namespace = _NAMESPACES.get(namespace, namespace)
    return f"{namespace}::{rest.partition('.')[0]}"


def _is_passed_on(name: str, value: ast.expr) -> bool:
    """Is it ``f(name)`` where ``f`` returns its argument or a copy of it?"""
    if not isinstance(value, ast.Call) or not value.args:
        return False
    first = value.args[0]
    return isinstance(first, ast.Name) and first.id == name


def _dotted(node: ast.expr) -> str | None:
    """``torch.ops.aten.mm.default`` as text; None for anything but names and dots."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def _dtype(node: ast.expr | None) -> str | None:
    """``torch.float32`` → ``float32``."""
    return node.attr if isinstance(node, ast.Attribute) else None


def _constant(node: ast.expr) -> Any:
    """A literal's value; None for anything else."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
