"""`check`: a report against its limits."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from instrumented_backend.compare import items
from instrumented_backend.compare.baseline import (
    RankBaseline,
    grown_items,
    known_ops,
    new_items,
)
from instrumented_backend.compare.figures import (
    EXACT,
    FIGURES,
    ONE_RUN,
    Figure,
    Value,
    functions_in,
    of_function,
)
from instrumented_backend.compare.functions import base
from instrumented_backend.compare.items import Item, items_of
from instrumented_backend.compare.limits import Limits, Slack
from instrumented_backend.records import Report

_CAUSES = (items.BREAK, items.SKIPPED, items.UNCOMPILED, items.RECOMPILE)
_FOLLOWING = (items.GRAPH, items.KERNEL, items.EXTERN, items.EAGER)
KEPT, MISSED, UNDECIDED = "kept", "missed", "undecided"


@dataclass
class Finding:
    """One limit, and whether it was kept.

    ``status`` is "undecided" where a sampled figure is too uncertain for its limit, or one that
    the baseline has is not known. ``guilty`` are what it comes from: where there is a baseline,
    what is new since.
    """

    figure: str
    status: str
    value: float | None
    spread: float
    known: str
    limit: float
    at_least: bool
    unit: str
    meaning: str
    limit_from: str  # "graph_breaks in pyproject.toml", "the baseline"
    rank: int = 0
    function: str | None = None  # where the limit is of one
    baseline: float | None = None
    slack: float = 0.0
    note: str | None = None
    guilty: list[Item] = field(default_factory=list)
    is_improved: bool = False  # better than the baseline: --update would tighten it


def check(report: Report, limits: Limits, baseline: RankBaseline | None = None) -> list[Finding]:
    """Every limit with its outcome, in the order of `FIGURES`, those of functions last.

    A figure with a limit of its own is not compared with the baseline, too.
    """
    found = items_of(report)
    new = found
    grown: list[Item] = []
    if baseline is not None:
        new, grown = new_items(found, baseline), grown_items(found, baseline)
        known = known_ops(baseline)
        for item in new:
            if item.kind == items.KERNEL:
                file, line = items.blame(item, known)
                item.file, item.line = file or item.file, line or item.line
    findings = []
    for figure in FIGURES.values():
        if figure.name in limits.absolute:
            finding = _absolute(figure, figure.read(report), limits.absolute[figure.name])
            finding.limit_from = "--limit" if figure.name in limits.given else limits.where
        elif baseline is not None and (figure.in_baseline or figure.name in limits.allowed):
            slack = limits.allowed.get(figure.name, Slack(figure.slack))
            finding = _relative(figure, figure.read(report), baseline, slack)
        else:
            continue
        if finding.status != KEPT:
            more = grown if figure.name == "kernel_bytes" else []
            finding.guilty = _guilty(figure, new) or _guilty(figure, more) or _guilty(figure, found)
        findings.append(finding)
    for function, figures in limits.functions.items():
        findings += _of_function(function, figures, found, limits.where)
    for finding in findings:
        finding.rank = report.run.rank
    return findings


def _finding(figure: Figure, value: Value, limit: float, limit_from: str) -> Finding:
    return Finding(
        figure.name,
        KEPT,
        value.value,
        value.spread,
        value.known,
        limit,
        figure.at_least,
        figure.unit,
        figure.meaning,
        limit_from,
        note=value.note,
    )


def _absolute(figure: Figure, value: Value, limit: float) -> Finding:
    finding = _finding(figure, value, limit, "")
    if value.value is None:
        # It was asked for: what cannot be told is not kept.
        finding.status = MISSED
        finding.note = f"not known: {value.note or 'the report does not have it'}"
    else:
        finding.status = _status(figure, value.value, value.spread, limit)
    return finding


def _relative(figure: Figure, value: Value, baseline: RankBaseline, slack: Slack) -> Finding:
    known = baseline.figures.get(figure.name)
    if known is None or value.value is None:
        finding = _finding(figure, value, known or 0.0, "the baseline")
        finding.status, finding.baseline = UNDECIDED, known
        side = "in the baseline" if known is None else "now"
        finding.note = f"not known {side}" + (f": {value.note}" if value.note else "")
        return finding
    allowed = slack.of(known)
    limit = known - allowed if figure.at_least else known + allowed
    finding = _finding(figure, value, limit, "the baseline")
    finding.baseline, finding.slack = known, allowed
    # Where the baseline was sampled, too, its figure may be off by as much.
    if figure.name in baseline.spreads:
        finding.spread += baseline.spreads[figure.name]
        finding.note = finding.note or "the baseline was sampled"
    finding.status = _status(figure, value.value, finding.spread, limit)
    is_bytes = figure.name == "kernel_bytes" and baseline.bytes_known is not None
    if finding.status == MISSED and is_bytes and value.known != baseline.bytes_known:
        # Inductor's own sums are kept where the caches were filled by a run with this backend.
        finding.status = UNDECIDED
        finding.note = f"{value.known} now, {baseline.bytes_known} in the baseline"
    if value.known in (EXACT,) and finding.status == KEPT:
        finding.is_improved = figure.is_worse(known, value.value)
    return finding


def _status(figure: Figure, value: float, spread: float, limit: float) -> str:
    ends = (value - spread, value + spread)
    worse = [figure.is_worse(end, limit) for end in ends]
    if all(worse):
        return MISSED
    if any(worse) and spread:
        return UNDECIDED if figure.is_worse(value, limit) else KEPT
    return KEPT


def _guilty(figure: Figure, found: Iterable[Item]) -> list[Item]:
    """The items that move the figure; the surest kind first, then the costliest.

    Where a function has a break or was recompiled, its graphs, kernels and eager ops follow.
    """
    kinds = {kind: i for i, kind in enumerate(figure.explained_by)}
    mine = [item for item in found if item.kind in kinds]
    causes = {base(item.function) for item in mine if item.kind in _CAUSES}
    mine = [
        item for item in mine if item.kind not in _FOLLOWING or base(item.function) not in causes
    ]

    def order(item: Item) -> tuple[bool, bool, int, float]:
        # What has no line of its own helps least, and a backward follows from its forward.
        has_no_line = item.kind in (items.KERNEL, items.EXTERN) and not item.places
        follows = item.direction == "backward"
        return has_no_line, follows, kinds[item.kind], -(item.cost_s or 0.0)

    return sorted(mine, key=order)


def _of_function(
    function: str, limits: dict[str, float], found: list[Item], where: str
) -> list[Finding]:
    values = of_function(function, found)
    findings = []
    for name, limit in limits.items():
        figure = FIGURES[name]
        if values is None:
            others = ", ".join(functions_in(found)[:10]) or "none"
            value = Value(None, note=f"nothing of {function} was compiled; there is: {others}")
        else:
            value = values[name]
        finding = _absolute(figure, value, limit)
        finding.function, finding.limit_from = function, where
        if finding.status != KEPT:
            mine = [item for item in found if function in (item.label, item.function)]
            finding.guilty = _guilty(figure, mine)
        findings.append(finding)
    return findings


def certainty(finding: Finding) -> str:
    """In words, for `--explain`."""
    if finding.known == ONE_RUN:
        return "of this run alone"
    if finding.known == EXACT:
        return "exact"
    return f"{finding.known}, ± {finding.spread:.3g}" if finding.spread else finding.known
