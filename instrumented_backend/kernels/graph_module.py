"""A graph's generated module as text: the kernels that it defines, the functions that run it."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from instrumented_backend.kernels import cpp
from instrumented_backend.kernels.pieces import pieces_of
from instrumented_backend.kernels.provenance import Provenance, read_comments_above
from instrumented_backend.kernels.wrapper import Wrapper

_LANGUAGES = {
    "triton": "triton",
    "multi_kernel": "triton",
    "size_hint_multi_kernel": "triton",
    "cpp": "cpp",
    "cpp_pybinding": "cpp",
    "cutlass": "cutlass",
    "cuda": "cutlass",
    "cutedsl": "cutedsl",
    "nv_universal_gemm": "cutedsl",
    "rocm": "rocm",
    "halide": "halide",
    "metal": "metal",
    "pallas": "pallas",
}
_MULTI_KERNELS = ("multi_kernel", "size_hint_multi_kernel")
WAIT = "\nasync_compile.wait(globals())"
_DEFINES = " = async_compile."
CPP_WRAPPER = "CppWrapperCodeCache.load_pybinding("
_HEADER_END = "\nasync_compile = AsyncCompile()"
_GRAPH_MARKS = (_HEADER_END, WAIT, CPP_WRAPPER)


# With ``triton.autotune_at_compile_time``, as `standalone_compile` has it, a text at the beginning
# is what was run for that. It has the kernels, too.
_AUTOTUNING = re.compile(r'\s*r"""\s*Compile-time auto-tuning block:.*?"""', re.DOTALL)


class ParseError(ValueError):
    """The text is no module that Inductor generated; the message is one line."""


_SIGNS = "\n()[]{},.;:+-*/%<>=&|^@~"  # of generated code, one character in seven at most
MAX_SIGNS = 1_000_000


def refuse_endless(text: str) -> None:
    """Raise `ParseError` for what would take more than a gigabyte as a syntax tree."""
    if len(text) > MAX_SIGNS and sum(map(text.count, _SIGNS)) > MAX_SIGNS:
        raise ParseError("more statements than a generated module has")


@dataclass
class Definition:
    name: str
    method: str  # of async_compile
    source: str | None
    subkernels: list[str]
    provenance: Provenance

    @property
    def language(self) -> str:
        return _LANGUAGES.get(self.method, "unknown")


@dataclass(frozen=True)
class KernelName:
    name: str
    language: str  # "triton", "cpp", ... or "unknown"


def without_autotuning(text: str) -> str:
    """The lines of that block are empty, and all others where they were."""
    found = _AUTOTUNING.match(text)
    return text if found is None else "\n" * found[0].count("\n") + text[found.end() :]


def kernel_names(source: str) -> list[KernelName]:
    """The kernels that a graph's module defines, in order, found without a parser.

    Inductor defines each one at module level as ``name = async_compile.<language>(...)``. A scan
    for that takes a fifteenth of the parser's time, on the thread that compiles.
    """
    source = without_autotuning(source)
    if CPP_WRAPPER in source:
        return [KernelName(function.name, "cpp") for function in cpp.cpp_functions(source)]
    names = []
    position = source.find(_DEFINES)
    while position >= 0:
        name = source[source.rfind("\n", 0, position) + 1 : position]
        method = source[position + len(_DEFINES) : source.find("(", position)]
        if name.isidentifier():
            names.append(KernelName(name, _LANGUAGES.get(method, "unknown")))
        position = source.find(_DEFINES, position + 1)
    return names


def is_graph(text: str) -> bool:
    """Is it a graph's module, as far as a glance tells? Else it may be one kernel's own."""
    return any(mark in text for mark in _GRAPH_MARKS)


def read_definitions(text: str) -> tuple[ast.Module, list[Definition]]:
    """All up to the wrapper, parsed, and the kernels that are defined there."""
    definitions_text = _without_header(text.partition(WAIT)[0])
    try:
        tree = ast.parse(definitions_text)
    except SyntaxError as error:
        raise ParseError(syntax_problem(error)) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ParseError(f"not Python: {str(error) or type(error).__name__}") from None
    return tree, list(_definitions(tree, definitions_text.split("\n")))


def _without_header(text: str) -> str:
    """Its lines, the imports of every module, are empty: no kernel can be defined there."""
    end = text.find(_HEADER_END)
    return "\n" * text.count("\n", 0, end) + text[end:] if end >= 0 else text


def _async_compile_calls(tree: ast.Module) -> Iterator[tuple[str, str, ast.Call]]:
    """Name, method and call of each ``name = async_compile.method(...)``."""
    for statement in tree.body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            continue
        target, function = statement.targets[0], statement.value.func
        if (
            isinstance(target, ast.Name)
            and isinstance(function, ast.Attribute)
            and isinstance(function.value, ast.Name)
            and function.value.id == "async_compile"
        ):
            yield target.id, function.attr, statement.value


def _definitions(tree: ast.Module, lines: list[str]) -> Iterator[Definition]:
    for name, method, call in _async_compile_calls(tree):
        strings = [
            node.value
            for node in (*call.args, *(word.value for word in call.keywords))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        subkernels = []
        if method in _MULTI_KERNELS and len(call.args) > 1:
            subkernels = [node.id for node in ast.walk(call.args[1]) if isinstance(node, ast.Name)]
        yield Definition(
            name=name,
            method=method,
            source=max(strings, key=len, default=None),
            subkernels=subkernels,
            provenance=read_comments_above(lines, call.lineno),
        )


def follow(
    definitions: list[Definition],
    tree: ast.Module,
    text: str,
    pause: Callable[[], None],
) -> tuple[Wrapper, str | None]:
    """Follow every function that may launch kernels; with what could not be read, or None."""
    wrapper = Wrapper(definition.name for definition in definitions)
    definitions_text, _, rest = text.partition(WAIT)
    try:
        try:
            inputs, functions = _functions(rest, pause)
        except SyntaxError:
            # A statement has a line that is not indented. Now in one go.
            inputs, functions = _functions_of(ast.parse(rest), rest.split("\n"))
        subgraphs = _functions_of(tree, definitions_text.split("\n"))[1]
        for function in inputs:
            wrapper.read_inputs(function)
        for pieces in (*subgraphs, *functions):
            before = len(wrapper.calls)
            for statements, piece in pieces:
                wrapper.follow_piece(statements, piece)
                pause()
            if before and wrapper.calls[before:]:  # partitions, or what one function calls
                wrapper.in_order = False
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        what = syntax_problem(error) if isinstance(error, SyntaxError) else str(error)
        return wrapper, f"the calls are unknown: the wrapper is {what}"
    return wrapper, None


Piece = tuple[list[ast.stmt], list[str]]  # statements, and the lines that they count from


def _functions(
    text: str, pause: Callable[[], None]
) -> tuple[list[ast.FunctionDef], list[list[Piece]]]:
    """The functions that make the graph's inputs, and those that run it, in pieces."""
    inputs: list[ast.FunctionDef] = []
    functions: list[list[Piece]] = []
    for segment in _segments(text):
        if segment.startswith(_INPUTS) and not inputs:
            inputs = [node for node in ast.parse(segment).body if isinstance(node, ast.FunctionDef)]
            pause()
        for function in _functions_in(segment):
            functions.append(pieces_of(function, pause))
    return inputs, functions


def _functions_of(
    tree: ast.Module, lines: list[str]
) -> tuple[list[ast.FunctionDef], list[list[Piece]]]:
    """The same of a module that has been parsed."""
    inputs: list[ast.FunctionDef] = []
    functions: list[list[Piece]] = []
    for statement in tree.body:
        for node in statement.body if isinstance(statement, ast.ClassDef) else [statement]:
            if not isinstance(node, ast.FunctionDef):
                continue
            if f"def {node.name}(" in _INPUTS:
                inputs.append(node)
            elif any(argument.arg == "args" for argument in node.args.args):
                # Lines before it would bring their comments along.
                own = ["" for _ in lines[: node.lineno]] + lines[node.lineno : node.end_lineno]
                functions.append([(node.body, own)])
    return inputs, functions


def _segments(text: str) -> Iterator[str]:
    """The text's top-level statements: each begins where a line is not indented."""
    lines: list[str] = []
    for line in text.split("\n"):
        if line and line[0] not in " #)]}\t'\"" and lines:
            yield "\n".join(lines)
            lines = []
        if line or lines:
            lines.append(line)
    yield "\n".join(lines)


_INPUTS = ("def get_args(", "def benchmark_compiled_module(")
_DEFINITION = re.compile(r" *(?:async )?def (\w+)\((?:self, )?args\)")


def _functions_in(segment: str) -> Iterator[str]:
    """The functions of the graph in a top-level statement: itself, or those of a class."""
    if segment.startswith("def ") and _DEFINITION.match(segment):
        yield segment
    elif segment.startswith("class "):
        method: list[str] = []
        for line in segment.split("\n"):
            if line.startswith("    ") and line[4:5].strip():
                if method:
                    yield "\n".join(method)
                method = [line] if _DEFINITION.match(line) else []
            elif method:
                method.append(line)
        if method:
            yield "\n".join(method)


def syntax_problem(error: SyntaxError) -> str:
    return f"not Python, or cut short (line {error.lineno}: {error.msg})"
