"""What in a test's source, and in the programs in its strings, reads a clock."""

import ast
import re
import textwrap
from collections.abc import Iterator

CLOCKS = frozenset(
    f"{name}{unit}"
    for name in (
        "clock_gettime",
        "monotonic",
        "perf_counter",
        "process_time",
        "thread_time",
        "time",
    )
    for unit in ("", "_ns")
)
TIMERS = frozenset({"do_bench", "do_bench_cudagraph", "elapsed_time", "elapsed_us", "timeit"})
MODULES = frozenset({"timeit", "torch.utils.benchmark"})
# In a string that is no Python by itself, such as a template's.
_CALL = re.compile(rf"\b(?:time\.(?:{'|'.join(sorted(CLOCKS))})|{'|'.join(sorted(TIMERS))})\(")


def clocks_in(source: str) -> list[str]:
    """``["3: time.monotonic"]``: line and name, of what is in a string the line where it begins.

    Raises SyntaxError.
    """
    return [f"{line}: {name}" for line, name in sorted(set(_found(ast.parse(source))))]


def _found(tree: ast.AST) -> Iterator[tuple[int, str]]:
    modules = {"time": "time", "datetime": "datetime"}  # by the names that they have here
    inside = set()  # of f-strings, which are looked at as a whole
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
    for node in ast.walk(tree):
        for name in _names(node, modules):
            if _is_clock(name):
                yield getattr(node, "lineno", 0), name
        if id(node) not in inside:
            text = _text(node)
            for name in () if text is None else _in_text(text):
                yield getattr(node, "lineno", 0), name


def _names(node: ast.AST, modules: dict[str, str]) -> Iterator[str]:
    """What a node imports or reaches for: ``time.perf_counter``, ``do_bench``."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Attribute):
        owner = node.value
        if isinstance(owner, ast.Name):
            yield f"{modules.get(owner.id, owner.id)}.{node.attr}"
        elif isinstance(owner, ast.Attribute):
            yield f"{owner.attr}.{node.attr}"
        else:
            yield f"?.{node.attr}"


def _is_clock(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    return (
        name in MODULES
        or module in MODULES
        or attribute in TIMERS
        or (module == "time" and attribute in CLOCKS)
        or (module in ("datetime", "datetime.datetime") and attribute in ("now", "utcnow"))
    )


def _text(node: ast.AST) -> str | None:
    """Of a string; each expression in an f-string is a name."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values
        )
    return None


def _in_text(text: str) -> Iterator[str]:
    try:
        tree = ast.parse(textwrap.dedent(text))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        yield from (found.group().rstrip("(") for found in _CALL.finditer(text))
        return
    yield from (name for _, name in _found(tree))
