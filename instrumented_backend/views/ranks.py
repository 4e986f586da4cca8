"""The ranks of a run as one text: a row a rank, totals, who is missing, and where they differ."""

from collections.abc import Sequence
from datetime import UTC, datetime

from instrumented_backend.records.escapes import shown_lines
from instrumented_backend.records.rank_reports import RankReport
from instrumented_backend.records.ranks import (
    COLLECTIVES,
    CacheDifference,
    Divergence,
    GraphDifference,
    Run,
    Waited,
)
from instrumented_backend.records.report import ENDED
from instrumented_backend.units import seconds
from instrumented_backend.views.output import TableRow, terminal_width
from instrumented_backend.views.tables import Table
from instrumented_backend.views.text import MAX_ROWS, PREFIX, render_rows
from instrumented_backend.views.words import count, short_path, wrap

MAX_SINGLE_ROWS = 32  # beyond it, ranks that are alike share a row
MAX_LINES = 3  # of each kind of difference
MAX_NAMES = 8  # of ranks, or ranges of them, in a line


def render_ranks(run: Run, command: str | None, width: int | None = None) -> str:
    """``command`` is what `run` was put in front of."""
    width = terminal_width() if width is None else width
    table = Table(
        "ranks",
        f"{PREFIX}{_heading(run, command)}",
        lambda _: (),
        least=("host", "backward_calls", "pid", "worker", "cache_misses", "wall_s", "breaks"),
    )
    lines = [line for said in differences(run) for line in wrap(said, width, break_words=True)]
    rows = rank_rows(run)
    text = "\n".join([render_rows(table, rows, width, MAX_ROWS), *_totals(run, width), *lines])
    return shown_lines(text)


def _heading(run: Run, command: str | None) -> str:
    if run.world_size is None:
        what = "1 process" if len(run.reports) == 1 else f"{len(run.reports)} processes"
    else:
        what = count(run.world_size, "rank")
        if run.world_size != len(run.by_rank):
            what = f"{len(run.by_rank)} of {what}"
        if len(run.reports) > len(run.by_rank):
            what = f"{len(run.reports)} processes, {what}"
    if len(run.hosts) > 1:
        what += f" on {len(run.hosts)} hosts"
    if command is not None:
        return f"{what} of {command}"
    return what if run.job is None else f"{what} of {run.job}"


# --- The table ----------------------------------------------------------------------------------


def rank_rows(run: Run) -> list[TableRow]:
    """A row for each process; of very many, one for those that did the same."""
    if len(run.reports) <= MAX_SINGLE_ROWS:
        return [_row(run, [report]) for report in run.reports]
    alike: dict[object, list[RankReport]] = {}
    for report in run.reports:
        summary = report.summary
        figures = (
            *(summary.graphs, summary.graph_calls, summary.backward_calls, summary.graph_breaks),
            *(summary.recompiles, bool(report.caches.graphs.miss), report.run.status),
        )
        alike.setdefault(figures, []).append(report)
    # Those that are unlike most are what there is to see.
    groups = sorted(alike.values(), key=lambda group: (len(group), group[0].run.rank))
    return [_row(run, group) for group in groups]


def _row(run: Run, alike: Sequence[RankReport]) -> TableRow:
    """Of several, the times are the longest. A process is named where a rank has several."""
    first = alike[0]
    one_each = len(run.reports) == len(run.by_rank) and run.world_size is not None
    summary = first.summary
    walls = [report.run.wall_s for report in alike if report.run.wall_s is not None]
    several = len(alike) > 1
    return {
        "rank": rank_names([r.run.rank for r in alike]) if several else first.run.rank,
        "pid": None if several or one_each else first.run.pid,
        "host": first.run.host if not several and len(run.hosts) > 1 else None,
        "worker": None if several or one_each else first.run.worker,
        "status": None if first.run.status == ENDED else first.run.status,
        "graphs": summary.graphs,
        "calls": summary.graph_calls,
        "backward_calls": summary.backward_calls,
        "breaks": summary.graph_breaks,
        "recompiles": summary.recompiles,
        "cache_misses": max(report.caches.graphs.miss for report in alike),
        "compile_s": max(report.compile.total_s for report in alike),
        "wall_s": max(walls, default=None),
    }


def _totals(run: Run, width: int) -> list[str]:
    totals = run.totals
    calls = f"{count(totals.graph_calls, 'call')} (+{totals.backward_calls} backward)"
    lines = wrap(
        f"in all: {count(totals.graphs, 'graph')}, {calls}, "
        f"{count(totals.recompiles, 'recompile')} · compiled in {seconds(totals.compile_s)}, "
        f"the slowest in {seconds(totals.longest_compile_s)}",
        width,
    )
    if missing := run.missing:
        lines += wrap(
            f"missing: {_spans_named(missing)} of {run.world_size} left no report here: killed, "
            "still running, on another machine, or it compiled nothing",
            width,
        )
    if run.not_ended:
        lines += wrap(
            f"not ended: {ranks_named(run.not_ended)} left what was known{_last_seen(run)}: killed "
            "since, or still running",
            width,
        )
    return lines


def _last_seen(run: Run) -> str:
    """Of those that have not ended, the first."""
    seen = [run.by_rank[rank].run.seen_at for rank in run.not_ended]
    known = [at for at in seen if at is not None]
    return f" at {datetime.fromtimestamp(min(known), UTC):%F %T} UTC" if known else ""


# --- Where they differ --------------------------------------------------------------------------


def differences(run: Run) -> list[str]:
    """A line for each, the first divergence first; what all ranks did alike is not named."""
    lines = []
    named = _named(run.divergences)
    for divergence in named:
        lines.append(_divergence(run, divergence, is_first=divergence is run.divergences[0]))
    if len(run.divergences) > len(named):
        lines.append(f"{len(run.divergences) - len(named)} more compilations differ between ranks")
    if run.caches_differ is not None:
        lines.append(_caches(run.caches_differ))
    lines += [_graphs(difference) for difference in run.graphs_differ[:MAX_LINES]]
    if len(run.graphs_differ) > MAX_LINES:
        lines.append(f"{len(run.graphs_differ) - MAX_LINES} more compilations have other graphs")
    return lines


def _named(divergences: list[Divergence]) -> list[Divergence]:
    """The first ones, and the first recompilation: where ranks have parts of their own of a model,
    they have compilations of their own, too."""
    named = divergences[:MAX_LINES]
    recompiled = [one for one in divergences if one.number > 1]
    if recompiled and recompiled[0] not in named:
        named = [*named[:-1], recompiled[0]]
    return named


def _divergence(run: Run, one: Divergence, is_first: bool) -> str:
    who = ranks_named(one.ranks)
    # Modules share their code: the first compilation of another one recompiles nothing.
    is_first_of_another = one.guard is None and one.call == 1
    again = _number(one.number) if is_first_of_another else ""
    verb = "compiled" if one.number == 1 or again else "recompiled"
    head = "ranks first differ: " if is_first else "ranks differ: "
    head += f"{who} {verb} {_function(one.function, one.file, one.line)}{again}"
    if one.call is not None:
        head += f" in call {one.call}"
    if one.other_calls:
        calls = ", ".join(map(str, one.other_calls[:MAX_NAMES]))
        head += f", {ranks_named(one.others)} in call {calls}"
    else:
        head += f", {ranks_named(one.others)} did not"
    parts = [head]
    if one.guard is not None:
        where = "" if one.guard_file is None else f", at {_at(one.guard_file, one.guard_line)}"
        parts.append(f"guard: {one.guard}{where}")
    if one.compile_s is not None:
        parts.append(f"it took {seconds(one.compile_s)}{_waited(one.waited)}")
    return "; ".join(parts)


def _waited(waited: Waited | None) -> str:
    if waited is None:
        return ""
    if waited.by == COLLECTIVES:
        return f", and rank {waited.rank} waited {seconds(waited.seconds)} in a collective at most"
    return f", for which rank {waited.rank} waited {seconds(waited.seconds)} at most"


def _caches(difference: CacheDifference) -> str:
    where = f" ({', '.join(difference.cold_hosts)})" if 0 < len(difference.cold_hosts) <= 2 else ""
    return (
        f"caches: cold on {ranks_named(difference.cold)}{where}, warm on "
        f"{ranks_named(difference.warm)}: compiled in {seconds(difference.cold_s)} against "
        f"{seconds(difference.warm_s)}{_waited(difference.waited)}"
    )


def _graphs(difference: GraphDifference) -> str:
    place = difference.function, difference.file, difference.line
    variants = []
    for variant in difference.variants[:MAX_NAMES]:
        ops = " + ".join("?" if ops is None else str(ops) for ops in variant.ops[:MAX_NAMES])
        graphs = f"{count(len(variant.ops), 'graph')} of {ops} ops" if variant.ops else "no graph"
        kernels = "" if variant.kernels is None else f", {count(variant.kernels, 'kernel')}"
        variants.append(f"{ranks_named(variant.ranks)}: {graphs}{kernels}")
    of = _number(difference.number)
    return f"different graphs for {_function(*place)}{of}: {'; '.join(variants)}"


def _number(number: int) -> str:
    return "" if number == 1 else f", compilation {number}"


def _function(function: str | None, file: str | None, line: int | None) -> str:
    return f"{function or 'a function'} ({_at(file, line)})"


def _at(file: str | None, line: int | None) -> str:
    return short_path(file, line)


def ranks_named(ranks: Sequence[int]) -> str:
    """``rank 1``, ``ranks 0, 2-7``"""
    return _spans_named(_spans(ranks))


def _spans_named(spans: Sequence[range]) -> str:
    is_one = len(spans) == 1 and spans[0].stop == spans[0].start + 1
    return f"rank{'' if is_one else 's'} {_span_names(spans)}"


def rank_names(ranks: Sequence[int]) -> str:
    """``0, 2-7``, and after a few how many more."""
    return _span_names(_spans(ranks))


def _spans(ranks: Sequence[int]) -> list[range]:
    spans: list[range] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1].stop:
            spans[-1] = range(spans[-1].start, rank + 1)
        else:
            spans.append(range(rank, rank + 1))
    return spans


def _span_names(spans: Sequence[range]) -> str:
    names = [
        str(one.start) if one.stop == one.start + 1 else f"{one.start}-{one.stop - 1}"
        for one in spans[:MAX_NAMES]
    ]
    left = sum(one.stop - one.start for one in spans[MAX_NAMES:])
    return ", ".join(names) + (f" and {left} more" if left else "")
