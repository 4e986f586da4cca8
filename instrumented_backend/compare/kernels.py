"""Kernels of both reports, matched by what they fuse; the changes, function by function."""

from collections import defaultdict

from instrumented_backend.compare import items
from instrumented_backend.compare.difference import CHANGED, ESTIMATED, FEWER, MORE, Change
from instrumented_backend.compare.functions import file_name
from instrumented_backend.compare.items import Item, blame
from instrumented_backend.compare.matching import (
    match_items,
    match_kernels_by_name,
    match_kernels_of_another_torch,
)

_KINDS = (items.KERNEL, items.EXTERN)
MAX_DETAILS = 6
GROWN = 1.02  # of bytes: many are estimates

Lines = dict[str, set[int]]  # file → lines


def kernel_changes(before: list[Item], after: list[Item], same_torch: bool = True) -> list[Change]:
    """One change a function whose kernels are not what they were."""
    ours = [item for item in before if item.kind in _KINDS]
    theirs = [item for item in after if item.kind in _KINDS]
    matched = match_items(ours, theirs)
    match_kernels_by_name(matched)
    if not same_torch:
        match_kernels_of_another_torch(matched)
    gone, new = _by_function(matched.gone), _by_function(matched.new)
    counts = {side: _by_function(one) for side, one in (("before", ours), ("after", theirs))}
    known_ops = {op for item in ours for op in item.ops}
    known_lines = _lines(ours)
    changes = []
    changes += _grown(matched.pairs, {*new, *gone})
    for label in dict.fromkeys((*new, *gone)):
        fresh, lost = new.get(label, []), gone.get(label, [])
        was, now = (len(counts[side].get(label, [])) for side in ("before", "after"))
        guilty = _guilty(fresh, known_ops, known_lines) if fresh else None
        file, line = _line_of(guilty, known_ops, known_lines) if guilty else (None, None)
        costs = [item.cost_s for item in fresh if item.cost_s is not None]
        what = CHANGED if was == now else MORE if now > was else FEWER
        was_bytes, now_bytes = (sum(one.moved_bytes for one in side) for side in (lost, fresh))
        grown = now_bytes > GROWN * was_bytes
        changes.append(
            Change(
                items.KERNEL,
                what,
                f"kernels of {label}",
                now > was if was != now else grown or None,
                was,
                now,
                function=(fresh or lost)[0].function,
                file=file,
                line=line,
                cause=f"new: {guilty.text}" if guilty else None,
                cost_s=sum(costs) if costs else None,
                cost_of="its new kernels, estimated" if costs else None,
                details=[
                    *(f"new: {item.text}" for item in fresh[:MAX_DETAILS]),
                    *(f"gone: {item.text}" for item in lost[:MAX_DETAILS]),
                ],
            )
        )
    return changes


def _grown(pairs: list[tuple[Item, Item]], told: set[str]) -> list[Change]:
    """The same kernels that move more bytes; not where a function has others, which may be why."""
    by_function: dict[str, list[tuple[Item, Item]]] = defaultdict(list)
    for one, other in pairs:
        has_grown = one.moved_bytes and other.moved_bytes > GROWN * one.moved_bytes
        if has_grown and (other.label or "?") not in told:
            by_function[other.label or "?"].append((one, other))
    changes = []
    for label, grown in by_function.items():
        # The one with the most of them.
        _, most = max(grown, key=lambda pair: pair[1].moved_bytes - pair[0].moved_bytes)
        changes.append(
            Change(
                items.KERNEL,
                MORE,
                f"bytes that the same kernels of {label} move",
                True,
                sum(one.moved_bytes for one, _ in grown),
                sum(other.moved_bytes for _, other in grown),
                known=ESTIMATED,
                function=most.function,
                file=most.file,
                line=most.line,
                cause=f"larger inputs, most of them in {most.text}",
            )
        )
    return changes


def _by_function(found: list[Item]) -> dict[str, list[Item]]:
    grouped: dict[str, list[Item]] = defaultdict(list)
    for item in found:
        grouped[item.label or "?"].append(item)
    return grouped


def _guilty(new: list[Item], known_ops: set[str], known_lines: Lines) -> Item:
    """The likeliest edit: an op that no kernel had before; where there is none, such a line."""

    def suspicion(item: Item) -> tuple[bool, bool, bool, bool, float]:
        has_line = bool(item.places)
        # A backward follows from its forward.
        follows = item.direction == "backward"
        is_foreign = has_line and any(op not in known_ops for op in item.ops)
        _, line = _line_of(item, known_ops, known_lines)
        # Of several new ops, the one that stands first; else what takes longest.
        last = float(line or 0) if is_foreign else -(item.cost_s or 0.0)
        return not is_foreign, follows, not has_line, item.kind != items.EXTERN, last

    return min(new, key=suspicion)


def _lines(found: list[Item]) -> Lines:
    lines: Lines = defaultdict(set)
    for item in found:
        for file, line in item.places:
            if line is not None:
                lines[file_name(file)].add(line)
    return lines


def _line_of(item: Item, known_ops: set[str], known: Lines) -> tuple[str | None, int | None]:
    """The line of a new op; else the first that no kernel had before. Below an edit, lines move."""
    place = blame(item, known_ops)
    if place[0] is not None:
        return place
    places = [(file, line) for file, line in item.places if line is not None]
    fresh = sorted(place for place in places if place[1] not in known.get(file_name(place[0]), ()))
    chosen = fresh or places
    return chosen[0] if chosen else (None, None)
