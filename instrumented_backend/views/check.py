"""Limits and whether they were kept: as text, and as annotations that GitHub shows in the code."""

import os

from instrumented_backend.compare.checking import (
    KEPT,
    MISSED,
    UNDECIDED,
    Finding,
    certainty,
)
from instrumented_backend.compare.items import Item
from instrumented_backend.units import seconds, size
from instrumented_backend.views.words import beginning, count, short_path, wrap

MAX_GUILTY = 5  # of one limit, in text
MAX_ANNOTATIONS = 10  # of one limit
_BUDGET_WIDTH = 100  # pytest does not wrap what a failure says


def value_text(finding: Finding, value: float | None) -> str:
    if value is None:
        return "not known"
    if finding.unit == "bytes":
        return size(value)
    if finding.unit == "s":
        return seconds(value)
    number = f"{value:.0f}" if value == int(value) else f"{value:.1f}"
    return f"{number} %" if finding.unit == "%" else number


def figure_name(finding: Finding) -> str:
    return f"{finding.figure} of {finding.function}" if finding.function else finding.figure


def sentence(finding: Finding) -> str:
    """``graph_breaks is 2, at most 1 (pyproject.toml)``"""
    value, limit = value_text(finding, finding.value), value_text(finding, finding.limit)
    if value == limit and finding.value is not None and finding.value != finding.limit:
        # 4 bytes more of 12.5 KB are 12.5 KB, too.
        value, limit = f"{finding.value:,.10g}", f"{finding.limit:,.10g} {finding.unit}".rstrip()
    if finding.value is not None and finding.spread:
        value += f" ± {finding.spread:.2g}"
    bound = "at least" if finding.at_least else "at most"
    words = f"{figure_name(finding)} is {value}, {bound} {limit}"
    if finding.baseline is not None and finding.slack:
        was = value_text(finding, finding.baseline)
        words += f" ({finding.limit_from}: {was}, and {finding.slack:.3g} to spare)"
    else:
        words += f" ({finding.limit_from})"
    return words


def item_line(item: Item) -> str:
    """``model.py:14 `print(x)`: graph break in forward``"""
    source = f" `{item.source}`" if item.source else ""
    times = f", {count(int(item.count), 'time')}" if item.kind == "recompile" else ""
    if item.file is None:
        return f"{item.text}{times}"
    return f"{short_path(item.file, item.line)}{source}: {item.text}{times}"


def advice(item: Item) -> list[str]:
    said = [f"why: {item.cause}"] if item.cause else []
    return said + ([f"try: {item.cure}"] if item.cure else [])


def as_text(
    head: str, remarks: list[str], findings: list[Finding], width: int, explain: bool
) -> str:
    """What was missed with its cause and cure, then what could not be decided, then the rest."""
    lines = wrap(head, width)
    for remark in remarks:
        lines += wrap(f"note: {remark}", width)
    told: set[int] = set()
    several = len({finding.rank for finding in findings}) > 1
    for status, word in ((MISSED, "MISSED"), (UNDECIDED, "undecided")):
        for finding in findings:
            if finding.status == status:
                where = f"rank {finding.rank}: " if several else ""
                lines += wrap(f"{word} {where}{sentence(finding)}", width)
                lines += _below(finding, width, explain, told)
    kept = [finding for finding in findings if finding.status == KEPT]
    if explain:
        for finding in kept:
            lines += wrap(f"kept {sentence(finding)}", width)
            lines += _below(finding, width, True, told)
    elif kept:
        names = ", ".join(
            f"{figure_name(finding)} {value_text(finding, finding.value)}" for finding in kept
        )
        lines += wrap(f"kept {count(len(kept), 'limit')}: {names}", width)
    better = [finding for finding in findings if finding.is_improved]
    if better:
        names = ", ".join(figure_name(finding) for finding in better)
        lines += wrap(f"better than the baseline: {names}; --update holds it there", width)
    missed = sum(finding.status == MISSED for finding in findings)
    lines += wrap(f"{missed} of {count(len(findings), 'limit')} missed", width)
    return "\n".join(lines)


def budget_text(findings: list[Finding]) -> str:
    """Of a test: each limit with its causes, their lines and cures; nothing without findings."""
    told: set[int] = set()
    lines = []
    for finding in findings:
        lines.append(sentence(finding))
        lines += _below(finding, _BUDGET_WIDTH, False, told)
    return "\n".join(lines)


def _below(finding: Finding, width: int, explain: bool, told: set[int]) -> list[str]:
    """``told`` are the causes that were explained above: they are named, and no more."""
    said = []
    if finding.note and (finding.status != KEPT or explain):
        said.append(finding.note)
    if finding.status == UNDECIDED and finding.spread:
        said.append("INSTRUMENTED_OPS=always observes the whole run, and decides it")
    if explain:
        said.append(f"it counts: {finding.meaning}; {certainty(finding)}")
    lines = [f"  {line}" for text in said for line in wrap(text, width - 2, break_words=True)]
    for item in finding.guilty[:MAX_GUILTY]:
        known = id(item) in told
        text = f"{item_line(item)} (as above)" if known else item_line(item)
        lines += [f"  {line}" for line in wrap(text, width - 2, break_words=True)]
        if not known:
            told.add(id(item))
            for text in advice(item):
                lines += [f"    {line}" for line in wrap(text, width - 4, break_words=True)]
    if len(finding.guilty) > MAX_GUILTY:
        lines.append(f"  ... {len(finding.guilty) - MAX_GUILTY} more")
    return lines


# --- GitHub -------------------------------------------------------------------------------------


def relative(file: str) -> str:
    """From the working folder on, where a file is in it: what a repository calls it."""
    try:
        inside = os.path.relpath(file)
    except (OSError, ValueError):
        return file
    return file if inside.startswith(os.pardir) else inside


def message(finding: Finding, item: Item | None) -> str:
    if item is None:
        return sentence(finding) + (f": {finding.note}" if finding.note else "")
    said = [f"{sentence(finding)}: {item.text}", *advice(item)]
    return beginning(". ".join(text.rstrip(".") for text in said))


def as_github(findings: list[Finding]) -> str:
    """A workflow command for each cause of a limit that was missed; nothing where none was."""
    told: set[int] = set()
    lines = []
    for finding in findings:
        if finding.status != MISSED:
            continue
        title = f"{figure_name(finding)}: limit missed"
        guilty: list[Item | None] = [item for item in finding.guilty if id(item) not in told]
        if finding.guilty and not guilty:
            continue  # each has its annotation, for a limit above
        for item in guilty[:MAX_ANNOTATIONS] or [None]:
            told.add(id(item))
            place = ""
            if item is not None and item.file is not None:
                place = f"file={_property(relative(item.file))},"
                if item.line is not None:
                    place += f"line={item.line},"
            text = _data(message(finding, item))
            lines.append(f"::error {place}title={_property(title)}::{text}")
    return "\n".join(lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
