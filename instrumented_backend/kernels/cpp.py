"""A C++ kernel's source, read line by line: Inductor writes one statement on each."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from instrumented_backend.kernels.facts import Access, KernelFacts
from instrumented_backend.records import KernelRecord, notes

_DTYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "at::Half": "float16",
    "c10::Half": "float16",
    "bfloat16": "bfloat16",
    "at::BFloat16": "bfloat16",
    "c10::BFloat16": "bfloat16",
    "bool": "bool",
    "uint8_t": "uint8",
    "int8_t": "int8",
    "int16_t": "int16",
    "uint16_t": "uint16",
    "int32_t": "int32",
    "uint32_t": "uint32",
    "int64_t": "int64",
    "uint64_t": "uint64",
    "long": "int64",
    "int": "int32",
    "at::Float8_e4m3fn": "float8_e4m3fn",
    "at::Float8_e5m2": "float8_e5m2",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
    "complex64": "complex64",
    "at::complex<float>": "complex64",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}

_LOOP = re.compile(
    r"for\s*\(\s*\w+ (\w+)\s*=\s*static_cast<int64_t>\((.+?)\); \1<static_cast<int64_t>\((.+)\); "
)
_SIZE = re.compile(r"\bconst(?:expr)? int64_t ([BMNK]) = ([^;]+);")  # of a matrix product
_INTEGER = re.compile(r"\(?(-?\d+)L?\)?")
_CAST = "static_cast<int64_t>("


class NoKernel(ValueError):
    """The source defines no ``extern "C"`` function."""


@dataclass
class _Loop:
    """A ``for`` statement that is open; ``points`` is text where its bounds are not constants."""

    depth: int
    variable: str | None
    points: int | str
    number: int


def read_cpp(source: str, name: str | None = None) -> KernelFacts:
    """The facts of the last ``extern "C"`` function with a body in the source.

    Raises `NoKernel`.
    """
    functions = cpp_functions(source)
    if not functions:
        raise NoKernel('no extern "C" function')
    return read_function(functions[-1], source, name)


@dataclass
class CppFunction:
    name: str
    parameters: list[tuple[str, str]]  # type, name
    body: str


def cpp_functions(source: str) -> list[CppFunction]:
    """Each ``extern "C"`` function with a body; a declaration has none."""
    functions = []
    position = source.find('extern "C"')
    while position >= 0:
        head = source[position + len('extern "C"') :]
        opening = head.find("(")
        closing = head.find(")", opening)
        after = head[closing + 1 :].lstrip()
        if 0 <= opening < closing and after.startswith("{"):
            body = _body(after)
            functions.append(
                CppFunction(
                    name=head[:opening].split()[-1].lstrip("*"),
                    parameters=_parameters(head[opening + 1 : closing]),
                    body=body,
                )
            )
        position = source.find('extern "C"', position + 1)
    return functions


def _body(text: str) -> str:
    """From the opening brace to the line on which it is closed."""
    depth = 0
    length = 0
    for line in text.splitlines(keepends=True):
        depth += line.count("{") - line.count("}")
        length += len(line)
        if depth <= 0:
            break
    return text[:length]


def _parameters(text: str) -> list[tuple[str, str]]:
    """``const float* in_ptr0, const int64_t ks0`` → [("float*", "in_ptr0"), ...]."""
    parameters = []
    for part in text.replace("__restrict__", " ").split(","):
        kind, _, name = part.strip().rpartition(" ")
        if name.startswith("*"):
            kind, name = kind + "*", name.lstrip("*")
        kind = kind.replace("const ", "").replace(" *", "*").strip()
        if name:
            parameters.append((kind, name))
    return parameters


def dtype_of(kind: str) -> str:
    plain = kind.rstrip("*").strip()
    return _DTYPES.get(plain, plain)


def read_function(function: CppFunction, module: str, name: str | None) -> KernelFacts:
    """``module`` is all the source that comes with the function: a template has helpers there."""
    reader = _read(function.body, tuple(function.parameters))
    record = KernelRecord(kernel_name=name or function.name, language="cpp", device="cpu")
    is_template = "micro_gemm" in module or "flash_attention" in module or reader.no_own_loops
    record.kernel_category = (
        "template" if is_template else "reduction" if reader.reductions else "pointwise"
    )
    lines = function.body.splitlines()
    record.line_of_code = len(lines)
    record.num_for_loop = function.body.count("for (") if is_template else reader.for_loops
    record.num_load = len(reader.loads)
    record.num_store = len(reader.stores)
    record.num_atomic_add = len(reader.atomics)
    record.num_reduction = len(reader.reductions)
    record.num_args = len(function.parameters)
    record.arg_dtypes = {name: dtype_of(kind) for kind, name in function.parameters}
    text = module if is_template else function.body
    record.vectorized = "Vectorized<" in text or "VectorizedN<" in text or "micro_gemm" in text
    record.parallel = "#pragma omp" in text or "at::parallel_for" in text
    record.mutated_args = [
        name for name in reader.accesses if name.startswith("in_out_ptr") and not is_template
    ]
    if is_template:
        record.num_load = record.num_store = None
        record.add_note(
            notes.COUNTS_UNKNOWN,
            "loads and stores unknown: they are in the template's own functions",
        )
    return KernelFacts(
        record=record,
        constants={name: size for name, size in _SIZE.findall(module)} if is_template else {},
        parameters=[name for _, name in function.parameters],
        # A template hands its pointers on, piece by piece: their names tell the direction.
        accesses={name: Access() for name in reader.accesses} if is_template else reader.accesses,
        whole_buffers=is_template,
    )


@lru_cache(maxsize=256)  # repeated layers have the same kernels
def _read(body: str, parameters: tuple[tuple[str, str], ...]) -> "_Reader":
    """For reading only: the next function with this text gets it, too."""
    return _Reader(body, parameters)


class _Reader:
    """Counts loops and accesses in one function.

    A vectorised loop is written twice in one body, for the full vectors and for the tail: the
    same index inside the same loop is one load.
    """

    def __init__(self, body: str, parameters: Sequence[tuple[str, str]]) -> None:
        pointers = [name for kind, name in parameters if kind.endswith("*")]
        self.accesses = {name: Access() for name in pointers}
        self.loads: set[tuple[int, str, str]] = set()
        self.stores: set[tuple[int, str, str]] = set()
        self.atomics: set[tuple[int, str, str]] = set()
        self.reductions: set[tuple[int, str]] = set()
        self.for_loops = 0  # over the data; those over threads and vector lanes apart
        self._loops: list[_Loop] = []
        self._pointer = re.compile(rf"\b({'|'.join(map(re.escape, pointers))})\b(?=\s*[\[+,)])")
        self._read(body, bool(pointers))

    @property
    def no_own_loops(self) -> bool:
        """No loop of Inductor's own form, and pointers that are handed on: a template's body."""
        return not self.for_loops and not self.loads and not self.stores

    def _read(self, body: str, has_pointers: bool) -> None:
        depth = 0
        nest = 0
        for line in body.splitlines():
            text = line.strip()
            if text.startswith(("for(", "for (")):
                nest += 1
                self._loops.append(self._loop(text, depth, nest))
            elif "tmp_acc" in text and " = " in text:
                target = text.partition(" = ")[0].split()[-1]
                if target.startswith(("tmp_acc", "masked_tmp_acc")) and "_" in target:
                    plain = target.removesuffix("_vec").removesuffix("_local")
                    if plain.removeprefix("masked_").removeprefix("tmp_acc").isdigit():
                        self.reductions.add((self._outer(), plain))
            if has_pointers and not text.startswith(("#", "//")):
                self._accesses(text)
            depth += line.count("{") - line.count("}")
            while self._loops and depth <= self._loops[-1].depth and "}" in line:
                self._loops.pop()

    def _data_loop(self) -> int:
        """The innermost loop over the data: lanes of one vector have loops of their own."""
        return next((loop.number for loop in reversed(self._loops) if loop.variable), 0)

    def _outer(self) -> int:
        return self._loops[0].number if self._loops else 0

    def _loop(self, text: str, depth: int, number: int) -> _Loop:
        found = _LOOP.match(text)
        if found is None:
            return _Loop(depth, None, 1, number)  # over threads or lanes
        self.for_loops += 1
        low, high = _integer(found[2]), _integer(found[3])
        points: int | str = f"({found[3]} - ({found[2]}))"
        if low is not None and high is not None:
            points = max(high - low, 0)
        return _Loop(depth, found[1], points, number)

    def _accesses(self, text: str) -> None:
        for found in self._pointer.finditer(text):
            name, before, after = found[1], text[: found.start()], text[found.end() :].lstrip()
            index, rest = _index(after)
            if index is None and after[:1] == "+":
                index, rest = after[1:].partition(",")[0].strip(), ""
            if index is None and before.endswith("(") and "atomic_add_vec" in before:
                index = after[1:].partition(",")[0].strip()
            if index is None:
                continue  # handed on as it is
            where = (self._data_loop(), name, index)
            access = self.accesses[name]
            points = self._points()
            if "atomic_add" in before:
                self.atomics.add(where)
                _add(access.reads, index, points)
                _add(access.writes, index, points)
            elif _stores(before, rest):
                self.stores.add(where)
                _add(access.writes, index, points)
                if rest.lstrip().startswith(("+=", "-=", "*=")):
                    self.loads.add(where)
                    _add(access.reads, index, points)
            else:
                self.loads.add(where)
                _add(access.reads, index, points)

    def _points(self) -> int | str:
        """The product of the open loops' points."""
        number = 1
        symbols = []
        for loop in self._loops:
            if isinstance(loop.points, int):
                number *= loop.points
            else:
                symbols.append(loop.points)
        return "*".join([str(number), *symbols]) if symbols else number


def _add(uses: dict[str, int | str | None], index: str, points: int | str) -> None:
    known = uses.get(index, 0)
    if isinstance(points, int) and isinstance(known, int):
        uses[index] = max(known, points)
    else:
        uses[index] = points if known in (0, points) else None


def _integer(text: str) -> int | None:
    found = _INTEGER.fullmatch(text)
    return int(found[1]) if found else None


def _index(after: str) -> tuple[str | None, str]:
    """What follows a pointer: ``[static_cast<int64_t>(x0)] = ...`` → ("x0", " = ...")."""
    bracket = after[:1]
    start = after.find(_CAST)
    if bracket not in ("[", "+") or start < 0 or after[1:start].strip():
        return None, after
    depth = 0
    for i in range(start + len(_CAST) - 1, len(after)):
        if after[i] == "(":
            depth += 1
        elif after[i] == ")":
            depth -= 1
            if depth == 0:
                rest = after[i + 1 :]
                return after[start + len(_CAST) : i], rest.removeprefix("]")
    return None, after


def _stores(before: str, rest: str) -> bool:
    """Is the pointer written: on the left of an assignment, or the target of a vector store?"""
    if before.endswith((".store(", "store(")):
        return True
    if not before.strip():
        rest = rest.lstrip()
        return rest.startswith(("= ", "+=", "-=", "*="))
    if "transpose_mxn" in before:
        return not before.endswith("(")  # the first argument is the source
    return False
