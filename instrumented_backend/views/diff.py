"""What changed between two reports: as text, Markdown, HTML or JSON."""

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from instrumented_backend.compare.difference import (
    Change,
    Comparison,
    FigureChange,
    TimeChange,
)
from instrumented_backend.records.escapes import shown, within_lines
from instrumented_backend.units import seconds, size
from instrumented_backend.views.grid import Column, draw
from instrumented_backend.views.words import beginning, count, short_path, wrap

if TYPE_CHECKING:
    from jinja2 import Template

MAX_CHANGES = 20  # of a kind, in text
MAX_FOLLOWING = 4
WORTH_TELLING_S = 0.05  # of a time

TITLES = {True: "worse", None: "changed", False: "better"}


def headline(change: Change) -> str:
    """``new: graph break in f at model.py:14``, ``more: f recompiled, 1 → 5``"""
    text = f"{change.what}: {change.text}"
    if change.before is not None and change.after is not None:
        text += f", {_number(change.before)} → {_number(change.after)}"
    elif change.kind == "eager":
        text += f", {count(int(change.after or change.before or 0), 'call')}"
    if change.file is not None:
        text += f" at {short_path(change.file, change.line)}"
    if change.source:
        text += f" `{change.source}`"
    if change.cost_s:
        text += f" · {_cost(change.cost_s)}"
        if change.cost_of:
            text += f" ({change.cost_of})"
    return text if change.known == "exact" else f"{text} · {change.known}"


def explanation(change: Change) -> list[str]:
    """What is said below a change, a line each."""
    said = []
    if change.cause:
        said.append(f"{'was' if change.what == 'gone' else 'why'}: {change.cause}")
    if change.cure and change.worse:
        said.append(f"try: {change.cure}")
    if change.details:
        said.append(" · ".join(change.details))
    if change.follows:
        more = len(change.follows) - MAX_FOLLOWING
        told = "; ".join(change.follows[:MAX_FOLLOWING])
        said.append(f"with it: {told}{f'; {more} more' if more > 0 else ''}")
    return said


def grouped(comparison: Comparison) -> Iterator[tuple[str, list[Change]]]:
    """What is worse, what is neither, what is better; each in its order."""
    for worse, title in TITLES.items():
        changes = [change for change in comparison.changes if change.worse is worse]
        if changes:
            yield title, changes


def figure_rows(comparison: Comparison) -> list[FigureChange]:
    """The figures that changed, or of which that cannot be said and that differ."""
    return [
        figure
        for figure in comparison.figures
        if figure.changed or (figure.changed is None and figure.before != figure.after)
    ]


def time_rows(comparison: Comparison) -> list[TimeChange]:
    return [
        time
        for time in comparison.times
        if max(time.before_s or 0.0, time.after_s or 0.0) >= WORTH_TELLING_S
    ]


def verdict(comparison: Comparison) -> str:
    """One line: what there is to know before reading on."""
    worse = comparison.worse
    if worse:
        return f"{count(len(worse), 'change')} for the worse; first: {headline(worse[0])}"
    if comparison.changes:
        return f"nothing is worse; {count(len(comparison.changes), 'change')} of other kinds"
    if any(figure.changed for figure in comparison.figures):
        return "the same causes; some figures changed"
    return "no change but in times"


def matched_graphs(comparison: Comparison) -> str:
    by: dict[str, int] = {}
    for graph in comparison.graphs:
        by[graph.by] = by.get(graph.by, 0) + 1
    if not by:
        return "no graph is in both"
    ways = ", ".join(f"{number} by {way}" for way, number in by.items())
    return f"{count(len(comparison.graphs), 'graph')} in both: {ways}"


def as_text(comparison: Comparison, width: int) -> str:
    lines = wrap(f"A: {comparison.before}", width)
    lines += wrap(f"B: {comparison.after}", width)
    for one in comparison.surroundings:
        lines += wrap(f"differs: {one.what}: {one.before} → {one.after}", width)
    lines += ["", *wrap(verdict(comparison), width)]
    for title, changes in grouped(comparison):
        order = ", the costliest first" if title == "worse" else ""
        lines += ["", f"{title}{order}"]
        for number, change in enumerate(changes[:MAX_CHANGES], 1):
            lines += wrap(f"{number}. {headline(change)}", width, break_words=True)
            for said in explanation(change):
                lines += [f"   {line}" for line in wrap(said, width - 3, break_words=True)]
        if len(changes) > MAX_CHANGES:
            lines.append(f"... {len(changes) - MAX_CHANGES} more; --format json has all")
    lines += _figure_table(comparison, width) + _time_table(comparison, width)
    lines += ["", *wrap(matched_graphs(comparison), width)]
    return "\n".join(lines)


def _figure_table(comparison: Comparison, width: int) -> list[str]:
    figures = figure_rows(comparison)
    if not figures:
        return []
    columns = [
        Column("figure", "figure", [figure.figure for figure in figures], False),
        Column("before", "A", [_value(f, f.before, f.before_spread) for f in figures], True),
        Column("after", "B", [_value(f, f.after, f.after_spread) for f in figures], True),
        Column("is", "", [judgement(figure) for figure in figures], False),
    ]
    return ["", draw(columns, width)]


def _time_table(comparison: Comparison, width: int) -> list[str]:
    times = time_rows(comparison)
    if not times:
        return []
    columns = [
        Column("what", "seconds of one run each", [time.what for time in times], False),
        Column("before", "A", [_seconds(t.before_s, t.before_spread_s) for t in times], True),
        Column("after", "B", [_seconds(t.after_s, t.after_spread_s) for t in times], True),
    ]
    return ["", draw(columns, width)]


def judgement(figure: FigureChange) -> str:
    if figure.changed is None:
        return "one run each" if figure.known == "one run" else "not known"
    word = "worse" if figure.worse else "better"
    return word if figure.known == "exact" else f"{word}, {figure.known}"


def _value(figure: FigureChange, value: float | None, spread: float) -> str:
    if value is None:
        return "-"
    if figure.unit == "bytes":
        sides = {size(side) for side in (figure.before, figure.after) if side is not None}
        # 128 bytes more of 1.7 MB are 1.7 MB, too.
        text = size(value) if len(sides) > 1 else f"{value:,.0f} B"
    elif figure.unit == "%":
        text = f"{value:.1f} %"
    elif figure.unit == "s":
        text = seconds(value)
    else:
        text = _number(value)
    return f"{text} ± {spread:.2g}" if spread else text


def _seconds(value: float | None, spread: float) -> str:
    if value is None:
        return "-"
    return f"{value:.2f} ± {spread:.2f}" if spread >= 0.005 else f"{value:.2f}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.3g}"


def _cost(cost_s: float) -> str:
    return seconds(cost_s) if cost_s >= 0.1 else f"{1000 * cost_s:.2g} ms"


# --- Markdown -----------------------------------------------------------------------------------


def as_markdown(comparison: Comparison) -> str:
    """For a comment on a pull request."""
    lines = [
        f"### {_md(verdict(comparison))}",
        "",
        f"A: {_md(comparison.before)}  ",
        f"B: {_md(comparison.after)}",
        "",
    ]
    lines += [
        f"- differs: {one.what}: {_md(one.before)} → {_md(one.after)}"
        for one in comparison.surroundings
    ]
    for title, changes in grouped(comparison):
        lines += ["", f"**{title}**", ""]
        for number, change in enumerate(changes[:MAX_CHANGES], 1):
            lines.append(f"{number}. {_md(headline(change))}")
            lines += [f"   - {_md(said)}" for said in explanation(change)]
        if len(changes) > MAX_CHANGES:
            lines.append(f"\n{len(changes) - MAX_CHANGES} more")
    figures = figure_rows(comparison)
    if figures:
        lines += ["", "| figure | A | B | |", "| --- | ---: | ---: | --- |"]
        lines += [
            f"| {f.figure} | {_value(f, f.before, f.before_spread)} "
            f"| {_value(f, f.after, f.after_spread)} | {judgement(f)} |"
            for f in figures
        ]
    times = time_rows(comparison)
    if times:
        lines += ["", "| seconds of one run each | A | B |", "| --- | ---: | ---: |"]
        lines += [
            f"| {_md(t.what)} | {_seconds(t.before_s, t.before_spread_s)} "
            f"| {_seconds(t.after_s, t.after_spread_s)} |"
            for t in times
        ]
    return "\n".join([*lines, "", _md(matched_graphs(comparison))])


_MARKED = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>#|"} | {"\n": " ", "\r": " "})


def _md(text: str | None) -> str:
    """Text of others that Markdown leaves as it is."""
    return shown(beginning(text or "-").translate(_MARKED))


# --- HTML ---------------------------------------------------------------------------------------

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ sides[0].verdict }}</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color-scheme: light dark }
section + section { border-top: 2px solid #8886; margin-top: 3rem }
h1 { font-size: 1.3rem } h2 { font-size: 1.1rem; margin-top: 2rem }
li { margin: .6rem 0 } small { display: block; opacity: .8 }
table { border-collapse: collapse } td, th { padding: .2rem .8rem; border-bottom: 1px solid #8886 }
td:nth-child(2), td:nth-child(3) { text-align: right; font-variant-numeric: tabular-nums }
</style></head><body>
{% for side in sides %}<section>
<h1>{{ side.verdict }}</h1>
<p>A: {{ side.comparison.before }}<br>B: {{ side.comparison.after }}</p>
{% if side.comparison.surroundings %}<h2>Differs around them</h2><ul>
{% for one in side.comparison.surroundings %}<li>{{ one.what }}: {{ one.before }}
→ {{ one.after }}</li>
{% endfor %}</ul>{% endif %}
{% for title, changes in side.groups %}<h2>{{ title | capitalize }}</h2><ol>
{% for head, said in changes %}<li>{{ head }}
{% for line in said %}<small>{{ line }}</small>
{% endfor %}</li>
{% endfor %}</ol>{% endfor %}
{% for head, rows in side.tables %}<h2>{{ head }}</h2>
<table><tr><th></th><th>A</th><th>B</th><th></th></tr>
{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table>{% endfor %}
<p>{{ side.graphs }}</p>
</section>
{% endfor %}</body></html>
"""


def _finalized(value: object) -> object:
    return within_lines(beginning(value)) if type(value) is str else value


@cache
def _template() -> "Template":
    from jinja2 import Environment  # torch brings it; it takes a while to import

    return Environment(autoescape=True, finalize=_finalized).from_string(_PAGE)


def as_html(comparisons: list[Comparison]) -> str:
    """One file, with nothing to load and no script; a section for each rank."""
    return _template().render(sides=list(map(_side, comparisons)))


def _side(comparison: Comparison) -> dict[str, object]:
    """What the page shows of one rank."""
    figures = [
        (
            figure.figure,
            _value(figure, figure.before, figure.before_spread),
            _value(figure, figure.after, figure.after_spread),
            judgement(figure),
        )
        for figure in figure_rows(comparison)
    ]
    times = [
        (t.what, _seconds(t.before_s, t.before_spread_s), _seconds(t.after_s, t.after_spread_s))
        for t in time_rows(comparison)
    ]
    tables = [("Figures", figures), ("Seconds of one run each", times)]
    return {
        "comparison": comparison,
        "verdict": verdict(comparison),
        "groups": [
            (title, [(headline(change), explanation(change)) for change in changes])
            for title, changes in grouped(comparison)
        ],
        "tables": [table for table in tables if table[1]],
        "graphs": matched_graphs(comparison),
    }
