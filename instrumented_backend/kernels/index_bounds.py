"""Which values a kernel may be given as indices, from the checks in its own source.

Inductor checks an index that was loaded from memory, in Triton and in C++ alike, and says so in the
check's message: ``"index out of bounds: 0 <= tmp4 < 50257"``. What ``tmp4`` was made from is
followed back to the pointers it was loaded through. Triton kernels that check nothing (the backward
of an embedding) still tell, where a negative index is made one from the end:
``tl.where(tmp0 < 0, tmp0 + 50257, tmp0)``.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from instrumented_backend.kernels.expressions import evaluate

_CHECK = re.compile(r'"index out of bounds: (?:[^"<]+ <= )?(\w+)(?:\[\w+\])? < ([^"]+?)"')
_TRITON_VALUE = re.compile(r"^[ \t]*(tmp\w+) = (.*)$", re.MULTILINE)
_WRAP = re.compile(r"tl\.where\((tmp\w+), (tmp\w+), (tmp\w+)\)")
_CPP_VALUE = re.compile(r"\bauto (tmp\d+) =")
_VALUE = re.compile(r"\btmp\d+\b")
_INTEGER = re.compile(r"(?:tl\.full\(\[.*?\], |static_cast<\w+>\(|^\s*)(-?\d+)L?\)?(?=$|[,)\s])")


@dataclass(frozen=True)
class IndexBound:
    """Values of a pointer, plus ``offset``, have to stay below ``limit``, a number or symbols."""

    limit: str
    offset: int

    def values(self, sizes: Mapping[str, int]) -> int | None:
        """How many values from 0 on are valid; at least 1. None where a symbol is not known."""
        limit = evaluate(self.limit, sizes)
        return None if limit is None else max(limit - self.offset, 1)


@dataclass
class _Value:
    pointers: frozenset[str] = frozenset()
    constants: frozenset[int] = field(default_factory=frozenset)


def index_bounds(source: str, pointers: Iterable[str]) -> dict[str, list[IndexBound]]:
    """For each pointer of which loaded values are used as an index, the bounds that are checked."""
    names = sorted(pointers, key=len, reverse=True)
    if not names or not may_tell(source):
        return {}
    pointer = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    values: dict[str, _Value] = {}
    texts: dict[str, str] = {}
    found: dict[str, list[IndexBound]] = {}

    def add(value: _Value, limit: str) -> None:
        offset = sum(c for c in value.constants if c > 0 and str(c) != limit)
        for origin in value.pointers:
            bounds = found.setdefault(origin, [])
            bound = IndexBound(limit, offset)
            if bound not in bounds:
                bounds.append(bound)

    events: list[tuple[int, str, str]] = [
        (check.start(), "", f"{check[1]} {check[2]}") for check in _CHECK.finditer(source)
    ]
    events += [(start, name, text) for start, name, text in _assignments(source)]
    for _, name, text in sorted(events):
        if name:
            values[name], texts[name] = _value(text, pointer, values), text.strip()
            index, limit = _wrapped(texts[name], texts)
            if limit is not None:
                add(values.get(index, _Value()), limit)
            continue
        index, _, limit = text.partition(" ")
        add(values.get(index, _Value()), limit.strip().removesuffix("L"))
    return found


def may_tell(source: str) -> bool:
    """Is it worth looking for bounds?"""
    return "index out of bounds" in source or "tl.where(" in source


def _wrapped(text: str, texts: Mapping[str, str]) -> tuple[str, str | None]:
    """The index that ``text`` makes one from the end if it is negative, and of how many."""
    wrap = _WRAP.fullmatch(text)
    if wrap is None:
        return "", None
    is_negative, from_end, index = wrap.groups()
    size = texts.get(from_end, "").removeprefix(f"{index} + ")
    if texts.get(is_negative) != f"{index} < 0" or size not in texts:
        return "", None
    number = _INTEGER.search(texts[size])
    return index, number[1] if number is not None else texts[size]


def _assignments(source: str) -> Iterable[tuple[int, str, str]]:
    if 'extern "C"' not in source:
        for line in _TRITON_VALUE.finditer(source):
            yield line.start(), line[1], line[2]
        return
    for found in _CPP_VALUE.finditer(source):
        yield found.start(), found[1], _statement(source, found.end())


def _statement(source: str, start: int) -> str:
    """Up to the semicolon that no bracket encloses."""
    depth = 0
    for i in range(start, len(source)):
        character = source[i]
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        if (character == ";" and depth == 0) or depth < 0:
            return source[start:i]
    return source[start:]


def _value(text: str, pointer: re.Pattern[str], known: Mapping[str, _Value]) -> _Value:
    origins = frozenset(pointer.findall(text))
    if origins:
        return _Value(origins)  # loaded: what the address was made from does not matter
    names = set(_VALUE.findall(text))
    if not names:
        integer = _INTEGER.search(text)
        return _Value(constants=frozenset([int(integer[1])]) if integer else frozenset())
    parts = [known[name] for name in names if name in known]
    return _Value(
        frozenset().union(*(part.pointers for part in parts)),
        frozenset().union(*(part.constants for part in parts)),
    )
