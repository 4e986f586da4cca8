"""What the text of a Triton kernel's module is made of, for `triton.py` and `reach.py`."""

import ast
import re
import string
from collections.abc import Iterator
from typing import Any

# The decorators of torch._inductor.runtime.triton_heuristics.
CATEGORIES = (
    "pointwise",
    "reduction",
    "persistent_reduction",
    "split_scan",
    "cooperative_reduction",
    "foreach",
    "template",
    "user_autotune",
    "fixed_config",
)
_STATEMENT_END = frozenset(string.ascii_letters + string.digits + "_)]")
META_KEYS = (
    *("grid_type", "mutated_arg_names", "num_load", "num_store", "num_reduction"),
    *("kernel_num_gb", "kernel_flop", "combo_grid_meta"),
)
# Words of the lines that are read; "arg_" is what a template calls its pointers.
_MATTERS = re.compile(
    r"load|store|atomic|ptr|desc|arg_|for |lambda|helpers|tl\.sum|tl\.max|tl\.min|reduce"
    r"|[\"'\\#;]"
)
_BRACKET = re.compile(r"[\[\](){}]")

_DTYPES = {
    "i1": "bool",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e4b8": "float8_e4m3fnuz",
    "fp8e5": "float8_e5m2",
    "fp8e5b16": "float8_e5m2fnuz",
    "fp8e8m0fnu": "float8_e8m0fnu",
}


class NoKernel(ValueError):
    """The module defines no Triton kernel."""


def without_boilerplate(source: str) -> str:
    """The module without what no record needs, which takes two thirds of the parser's time.

    That is the imports, most of what Inductor tells Triton and itself in the decorator, and the
    body's lines of plain arithmetic.
    """
    start = source.find("\n@triton") + 1
    jit = source.find("\n@triton.jit\ndef ", start)
    if start == 0 or jit < 0:
        return source
    head = "\n".join(map(_short_head, source[start:jit].split("\n")))
    return head + _without_arithmetic(source[jit:])


def _short_head(line: str) -> str:
    """Leave out entries with plain values of which the key is not looked for.

    So is what Triton is told about the divisibility of each argument, and of the device all
    that comes after its compute capability.
    """
    if "inductor_meta={" in line:
        first, *entries = line.split(", '")
        return ", '".join([first, *filter(_is_needed, entries)])
    if "triton_meta={" in line:
        for beginning, end in (("'configs': [{", "}]"), (", major=", ")")):
            i = line.find(beginning)
            j = line.find(end, i)
            if 0 <= i < j:
                line = line[: i + (len(beginning) if end == "}]" else 0)] + line[j:]
    return line


def _is_needed(entry: str) -> bool:
    """``max_autotune': False`` is not; one with a bracket belongs to a value of several parts."""
    key, colon, value = entry.partition("': ")
    return not colon or key in META_KEYS or _BRACKET.search(value) is not None


def _without_arithmetic(body: str) -> str:
    """The body without its lines of plain arithmetic, as many lines long as before.

    A line is left out only where it is an assignment that is complete in itself and holds none
    of the words that are looked for; nothing is where a statement takes several lines.
    """
    lines = body.split("\n")
    last_indent = -1  # of the statement above
    for i in range(3, len(lines)):
        line = lines[i]
        if line.count("(") != line.count(")") or line.count("[") != line.count("]"):
            return body
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        if not text or not indent or text[0] == "#":
            continue
        name, equals, value = text.partition(" = ")
        if (
            equals
            and name.isidentifier()
            and value[-1:] in _STATEMENT_END
            and not value.isalnum()  # a constant, or an alias
            and not name.isupper()  # a template's sizes
            and _MATTERS.search(value) is None
            and "numel" not in name
        ):
            # A block needs one statement.
            lines[i] = "" if indent == last_indent else line[:indent] + "pass"
        last_indent = indent
    return "\n".join(lines)


def kernel_function(functions: list[ast.FunctionDef]) -> tuple[ast.FunctionDef, ast.Call | None]:
    """The function under one of Inductor's decorators, or the last one under ``triton.jit``."""
    plain = None
    for statement in functions:
        for decorator in statement.decorator_list:
            if isinstance(decorator, ast.Call) and last_name(decorator.func) in CATEGORIES:
                return statement, decorator
            if last_name(decorator) == "jit":
                plain = statement
    if plain is None:
        raise NoKernel("no function under a decorator of Triton's")
    return plain, None


def arguments_of(function: ast.FunctionDef) -> list[ast.arg]:
    arguments = function.args
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def is_constexpr(annotation: ast.expr | None) -> bool:
    """``tl.constexpr``, which may stand in quotes."""
    if isinstance(annotation, ast.Constant):
        return str(annotation.value).endswith("constexpr")
    return annotation is not None and last_name(annotation) == "constexpr"


def dispatch(
    body: list[ast.stmt],
) -> tuple[list[ast.stmt], list[list[ast.stmt]], list[ast.stmt]]:
    """A combo's body: what is before the choice by program id, the sub-kernels, and after it.

    What is there after it is one body for all of them (from torch 2.15); the last ``else`` is of
    programs without a sub-kernel.
    """
    for i, statement in enumerate(body):
        if isinstance(statement, ast.If) and _mentions(statement.test, "pid"):
            branches = []
            rest: list[ast.stmt] = [statement]
            while len(rest) == 1 and isinstance(rest[0], ast.If):
                branches.append(rest[0].body)
                rest = rest[0].orelse
            return body[:i], branches, body[i + 1 :]
    return body, [], []


def _mentions(node: ast.expr, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def last_name(node: ast.expr) -> str | None:
    """``triton_heuristics.pointwise`` → ``pointwise``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def literal(node: ast.expr | None) -> Any:
    """A literal's value; a call becomes the dict of its keywords, other code its text."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Dict):
        return {
            _key(key): literal(value)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [literal(item) for item in node.elts]
    if isinstance(node, ast.Call):
        return {word.arg: literal(word.value) for word in node.keywords if word.arg}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = literal(node.operand)
        return -value if isinstance(value, int | float) else ast.unparse(node)
    return None if node is None else ast.unparse(node)


def _key(node: ast.expr) -> Any:
    value = literal(node)
    return ast.unparse(node) if isinstance(value, dict | list) else value


def dtype_of(kind: str) -> str:
    """``*fp32`` → ``float32``; what is not known stays as it is."""
    plain = kind.removeprefix("*").removeprefix("k")
    if plain.startswith("tensordesc<"):
        plain = plain.removeprefix("tensordesc<").partition("[")[0]
    return _DTYPES.get(plain, plain)


def is_pointer(kind: str) -> bool:
    return kind.startswith(("*", "tensordesc", "nvTmaDesc"))


def chosen(node: ast.expr | None, keys: tuple[str, ...]) -> dict[str, Any]:
    """The named entries of a dict literal: the others, which are most of it, are not read."""
    if not isinstance(node, ast.Dict):
        return {}
    return {
        key.value: literal(value)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value in keys
    }


def nodes_of(statements: list[ast.stmt]) -> Iterator[Any]:
    """Every node but names and constants, statements in the order of the text."""
    stack: list[ast.AST] = list(reversed(statements))
    while stack:
        node = stack.pop()
        kind = type(node)
        if kind in _LEAVES or not isinstance(node, ast.AST):
            continue
        yield node
        for name in _FIELDS.get(kind) or kind._fields[::-1]:
            value = getattr(node, name, None)
            if type(value) is list:
                stack += value[::-1]
            elif value is not None:
                stack.append(value)


_LEAVES = frozenset({ast.Name, ast.Constant, ast.Pass, ast.Load, ast.Store, str})
# The fields that hold nodes, last first, of the commonest kinds.
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Assign: ("value",),
    ast.AnnAssign: ("value",),
    ast.Expr: ("value",),
    ast.Call: ("keywords", "args", "func"),
    ast.keyword: ("value",),
    ast.BinOp: ("right", "left"),
    ast.Attribute: ("value",),
    ast.Subscript: ("slice", "value"),
    ast.Compare: ("comparators", "left"),
}


def sizes(value: Any) -> dict[str, int] | list[int] | None:
    """``{"x": 4096, "r0_": 8}``; older modules have a list. None for what is neither."""
    if isinstance(value, dict):
        known = {name: size for name, size in value.items() if type(size) is int}
        return known if known == value and all(isinstance(name, str) for name in known) else None
    if isinstance(value, list):
        return value if all(type(size) is int for size in value) else None
    return None
