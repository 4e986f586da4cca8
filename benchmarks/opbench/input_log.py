"""Logs of operator inputs, in the format of PyTorch's ``operator_inp_utils.py``, as plain data.

    Operator: aten.add.Tensor
    cnt: 48, ((T([4, 1024, 768], f16), T([4, 1024, 768], f16, stride=(786432, 1, 1024))), {})

Nothing in a file is ever evaluated: a line is parsed to Python's syntax tree, and only the nodes
listed here are taken. Every error names the file and the line. Nothing here imports torch.
"""

import ast
import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_ELEMENTS = 10**9 - 1  # of one tensor, the gaps between its strides included
_MAX_FILE_BYTES = 64_000_000
_MAX_LINE = 1_000_000
_MAX_DEPTH = 16
_MAX_STRING = 200
_MAX_COUNT = 10**12
_MAX_INTEGER = 2**63 - 1

DTYPES = {
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "bf16": "bfloat16",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "b8": "bool",
    "c32": "complex32",
    "c64": "complex64",
    "c128": "complex128",
}
_SHORT = {name: short for short, name in DTYPES.items()}
_TORCH_NAMES = {
    *("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"),
    *("contiguous_format", "preserve_format", "channels_last", "channels_last_3d"),
}
_OPERATOR = re.compile(r"Operator: ([A-Za-z_]\w*\.\w+\.\w+)")
_COUNTED = re.compile(r"cnt: (\d{1,15}), (.+)")
RENAMED = {"aten.sum.SymInt": "aten.sum.dim_IntList"}


class InputLogError(ValueError):
    """A file is not a log of operator inputs; the message is one line, with file and line."""


class _Wrong(ValueError):
    """What is wrong with one line, and what would be right."""


@dataclass(frozen=True)
class TensorSpec:
    """A strided tensor; ``stride`` is None where it is contiguous. ``dtype`` is a short name."""

    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...] | None = None

    @property
    def extent(self) -> int:
        """Elements that its storage needs, gaps included."""
        return extent(self.shape, self.stride)


@dataclass(frozen=True)
class SparseSpec:
    """A sparse tensor; ``nnz`` is unknown where it was recorded on fake tensors."""

    shape: tuple[int, ...]
    dtype: str
    layout: str
    is_coalesced: bool
    nnz: int | None = None


@dataclass(frozen=True)
class DtypeName:
    """A dtype among the arguments, by its short name."""

    short: str


@dataclass(frozen=True)
class TorchName:
    """A layout or memory format among the arguments: ``torch.<name>``."""

    name: str


@dataclass(frozen=True)
class Inputs:
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __str__(self) -> str:
        return f"({to_text(self.args)}, {to_text(self.kwargs)})"


Log = dict[str, dict[str, tuple[Inputs, int]]]  # operator → text of the inputs → inputs, count


def extent(shape: tuple[int, ...], stride: tuple[int, ...] | None) -> int:
    """``(2, 3), (10, 1)`` → 1·10 + 2·1 + 1 = 13 elements, from the first to the last."""
    if 0 in shape:
        return 0
    if stride is None:
        return math.prod(shape)
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


# --- Writing ------------------------------------------------------------------------------------


def to_text(value: Any) -> str:
    """One value as it stands in a log; raises TypeError for what a log can't hold."""
    match value:
        case TensorSpec(shape, dtype, None):
            return f"T({list(shape)}, {dtype})"
        case TensorSpec(shape, dtype, stride):
            return f"T({list(shape)}, {dtype}, stride={stride})"
        case SparseSpec(shape, dtype, layout, coalesced, nnz):
            last = "" if nnz is None else f", {nnz}"
            return f"ST({list(shape)}, {dtype}, torch.{layout}, {coalesced}{last})"
        case DtypeName(short):
            return short
        case TorchName(name):
            return f"torch.{name}"
        case list():
            return "[" + ", ".join(map(to_text, value)) + "]"
        case tuple():
            return "(" + ", ".join(map(to_text, value)) + (",)" if len(value) == 1 else ")")
        case dict():
            return "{" + ", ".join(f"{key!r}: {to_text(item)}" for key, item in value.items()) + "}"
        case None | bool() | int() | float() | complex() | str():
            return repr(value)
    raise TypeError(f"a log has no way to write a {type(value).__name__}")


def log_text(log: Log) -> str:
    """The whole file, operators sorted by name."""
    lines = []
    for operator in sorted(log):
        lines.append(f"Operator: {operator}")
        lines += [f"cnt: {count}, {text}" for text, (_, count) in log[operator].items()]
    return "\n".join(lines) + "\n"


# --- Reading ------------------------------------------------------------------------------------


def read_log(path: Path) -> Log:
    """Everything in a file, checked; raises `InputLogError`."""
    log: Log = {}
    operator = None
    for number, line in _lines(path):
        if not line:
            continue
        try:
            if line.startswith("Operator:"):
                operator = _operator(line)
                log.setdefault(operator, {})
            elif operator is None:
                raise _Wrong("expected 'Operator: <namespace>.<name>.<overload>' first")
            else:
                inputs, count = _counted(line)
                text = str(inputs)
                _, before = log[operator].get(text, (inputs, 0))
                log[operator][text] = (inputs, before + count)
        except _Wrong as wrong:
            raise InputLogError(f"{path}:{number}: {wrong}") from None
    if not log:
        raise InputLogError(f"{path}: no operator in it")
    return log


def parse_inputs(text: str) -> Inputs:
    """``((T([2], f32), 1), {})``; raises ValueError, saying what is wrong."""
    return _inputs(text)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        size = path.stat().st_size
        if size > _MAX_FILE_BYTES:
            raise InputLogError(f"{path}: {size} bytes; at most {_MAX_FILE_BYTES} are read")
        content = path.read_bytes()
    except OSError as error:
        raise InputLogError(f"{path}: cannot be read: {error.strerror}") from None
    for number, line in enumerate(content.split(b"\n"), 1):
        where = f"{path}:{number}"
        if line.endswith(b"\r"):
            raise InputLogError(f"{where}: ends with CR LF; lines end with LF alone")
        if len(line) > _MAX_LINE:
            raise InputLogError(f"{where}: {len(line)} characters; at most {_MAX_LINE} in a line")
        try:
            yield number, line.decode("ascii")
        except UnicodeDecodeError as error:
            try:
                line.decode("utf-8")
                what = "not ASCII"
            except UnicodeDecodeError:
                what = "not UTF-8"
            raise InputLogError(f"{where}: {what}, at byte {error.start + 1}") from None


def _operator(line: str) -> str:
    match = _OPERATOR.fullmatch(line)
    if match is None:
        raise _Wrong(
            f"{_shown(line)} names no operator; expected 'Operator: aten.add.Tensor', "
            "with the overload"
        )
    return RENAMED.get(match[1], match[1])


def _counted(line: str) -> tuple[Inputs, int]:
    match = _COUNTED.fullmatch(line)
    if match is None:
        raise _Wrong(f"{_shown(line)}; expected 'cnt: N, (args, kwargs)'")
    count = int(match[1])
    if not 1 <= count <= _MAX_COUNT:
        raise _Wrong(f"count {count}; expected 1 to {_MAX_COUNT}")
    return _inputs(match[2]), count


def _inputs(text: str) -> Inputs:
    _check_depth(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of a string's backslashes
            tree = ast.parse(text, mode="eval").body
        match tree:
            case ast.Tuple(elts=[ast.Tuple(elts=args), ast.Dict() as kwargs]):
                return Inputs(tuple(map(_value, args)), _keywords(kwargs))
    except SyntaxError as error:
        raise _Wrong(f"not Python's syntax: {error.msg}, at {_shown(text)}") from None
    except _Wrong:
        raise
    except (ValueError, RecursionError, MemoryError) as error:
        raise _Wrong(f"cannot be parsed: {str(error) or 'it is too deep'}") from None
    raise _Wrong(f"{_shown(text)}; expected a pair of arguments and keywords: ((...), {{...}})")


def _check_depth(text: str) -> None:
    # Before the parser sees it, whose own limit is a matter of the Python version.
    depth = 0
    for character in text:
        if character in "([{":
            depth += 1
            if depth > _MAX_DEPTH:
                raise _Wrong(f"nested more than {_MAX_DEPTH} deep")
        elif character in ")]}":
            depth -= 1


def _keywords(node: ast.Dict) -> dict[str, Any]:
    keywords = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            raise _Wrong("a keyword is not a string")
        keywords[key.value] = _value(value)
    return keywords


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=str(text)):
            if len(text) > _MAX_STRING:
                raise _Wrong(f"a string of {len(text)} characters; at most {_MAX_STRING}")
            return DtypeName(text) if text in DTYPES else text  # older logs quote them
        case ast.Constant(value=None | bool() | float() | complex() as constant):
            return constant
        case ast.Constant(value=int(number)):
            return _integer(number)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))) if (
            number == _MAX_INTEGER + 1
        ):
            return -number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() | ast.Name() as operand):
            value = _value(operand)
            if isinstance(value, int | float | complex) and not isinstance(value, bool):
                return -value
            raise _Wrong(f"-{_source(operand)} is no number")
        case ast.Name(id="inf"):
            return math.inf
        case ast.Name(id="nan"):
            return math.nan
        case ast.Name(id=name) if name in DTYPES:
            return DtypeName(name)
        case ast.Attribute(value=ast.Name(id="torch" | "th"), attr=name):
            if name in _SHORT:
                return DtypeName(_SHORT[name])
            if name in _TORCH_NAMES:
                return TorchName(name)
            raise _Wrong(f"torch.{name} is no dtype, layout or memory format")
        case ast.List(elts=items):
            return [_value(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item) for item in items)
        case ast.Call(func=ast.Name(id="T"), args=arguments, keywords=keywords):
            return _tensor(arguments, keywords)
        case ast.Call(func=ast.Name(id="ST"), args=arguments, keywords=[]):
            return _sparse([_value(argument) for argument in arguments])
        case ast.Call(func=ast.Name(id="device"), args=arguments, keywords=keywords):
            return _device(arguments, keywords)
        case ast.Call():
            raise _Wrong(f"{_source(node)}: only T(...), ST(...) and device(...) may be called")
        case ast.Name(id=name):
            raise _Wrong(f"{name} is unknown; dtypes are {', '.join(DTYPES)}")
    raise _Wrong(f"{_source(node)}: {type(node).__name__} is not allowed")


def _tensor(arguments: list[ast.expr], keywords: list[ast.keyword]) -> TensorSpec:
    values = [_value(argument) for argument in arguments]
    for keyword in keywords:
        if keyword.arg != "stride" or len(values) != 2:
            raise _Wrong(f"T(shape, dtype, stride=...) has no {keyword.arg}")
        values.append(_value(keyword.value))
    match values:
        case [list() as shape, DtypeName(dtype)]:
            stride = None
        case [list() as shape, DtypeName(dtype), tuple() as stride]:
            pass
        case _:
            raise _Wrong("a tensor is T([sizes], dtype) or T([sizes], dtype, stride=(steps))")
    spec = TensorSpec(_sizes(shape), dtype, None if stride is None else _sizes(stride))
    if spec.stride is not None and len(spec.stride) != len(spec.shape):
        raise _Wrong(f"{len(spec.stride)} strides for {len(spec.shape)} dimensions")
    if spec.extent > MAX_ELEMENTS or math.prod(spec.shape) > MAX_ELEMENTS:
        raise _Wrong(f"{to_text(spec)} has too many elements; at most {MAX_ELEMENTS} are read")
    return spec


def _sparse(values: list[Any]) -> SparseSpec:
    match values:
        case [list() as shape, DtypeName(dtype), TorchName(layout), bool(coalesced), *rest] if (
            all(isinstance(nnz, int) and nnz >= 0 for nnz in rest[:1]) and len(rest) <= 1
        ):
            return SparseSpec(_sizes(shape), dtype, layout, coalesced, *rest)
    raise _Wrong("a sparse tensor is ST([sizes], dtype, torch.layout, is_coalesced, nnz)")


def _device(arguments: list[ast.expr], keywords: list[ast.keyword]) -> str:
    named = {keyword.arg: _value(keyword.value) for keyword in keywords}
    named |= dict(zip(("type", "index"), map(_value, arguments), strict=False))
    kind = named.get("type")
    if not isinstance(kind, str) or not set(named) <= {"type", "index"}:
        raise _Wrong("a device is device(type='cuda') or device(type='cuda', index=0)")
    return kind  # another machine's index says nothing here


def _sizes(values: Any) -> tuple[int, ...]:
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise _Wrong(f"{_shown(str(value))} is no size; sizes and strides are 0 or more")
    return tuple(values)


def _integer(number: int) -> int:
    if number > _MAX_INTEGER:
        raise _Wrong("an integer of more than 64 bits")
    return number


def _source(node: ast.expr) -> str:
    return _shown(ast.unparse(node))


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
