"""The reports of a run read together: a row a rank, totals, and where the ranks differ.

`runs` makes them of `RankReport`s, and a `Run` says all the rest. Times of several hosts are by
their own clocks.
"""

import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from instrumented_backend.records.rank_reports import (
    AT_RUN_TIME,
    Function,
    RankCompilation,
    RankGraph,
    RankReport,
)
from instrumented_backend.records.report import RUNNING

COLLECTIVES = "collectives"
COMPILATION = "compilation"

Spans = list[tuple[float, float]]
_Collective = tuple[str, int]  # its group, its number


@dataclass(frozen=True)
class Totals:
    """Over all processes that reported."""

    ranks: int
    processes: int
    graphs: int
    graph_calls: int
    backward_calls: int
    recompiles: int
    compile_s: float
    longest_compile_s: float  # of one process
    wall_s: float | None  # of the process that ran longest


@dataclass(frozen=True)
class Waited:
    """How long ranks waited for others that compiled, at most.

    ``by`` is "collectives" where the flight recorders of both have the collective in which they
    met: from when the waiting rank issued it to when the last one did. Else it is "compilation":
    how long that took, without the time in which the waiting rank compiled, too.
    """

    seconds: float
    by: str
    rank: int  # who waited longest


@dataclass(frozen=True)
class Divergence:
    """A compilation that some ranks made and others did not, or not in the same call."""

    function: str | None
    file: str | None
    line: int | None
    number: int  # of the function's compilations, from 1 on
    ranks: list[int]  # that made it, or made it in the ``call``
    others: list[int]
    call: int | None  # of the torch.compile, on the first of the ranks
    other_calls: list[int]  # of the others, where they made it in another call
    guard: str | None  # that failed, where it is a recompilation
    guard_file: str | None
    guard_line: int | None
    started_at: float | None  # on the first of the ranks, in seconds since 1970
    compile_s: float | None  # the longest of the ranks', with what was compiled lazily after it
    waited: Waited | None  # of the others; None is unknown


@dataclass(frozen=True)
class Variant:
    """What one compilation of a function became on some of the ranks."""

    ranks: list[int]
    ops: list[int | None]  # a graph each
    kernels: int | None


@dataclass(frozen=True)
class GraphDifference:
    """One compilation of a function that has other graphs on other ranks."""

    function: str | None
    file: str | None
    line: int | None
    number: int
    variants: list[Variant]


@dataclass(frozen=True)
class CacheDifference:
    """Compilations that all ranks made, found in a cache on some of the ranks only."""

    warm: list[int]
    cold: list[int]  # at least one graph was compiled that others had from a cache
    warm_s: float  # the longest that one rank spent on them
    cold_s: float
    cold_hosts: list[str]
    waited: Waited | None


@dataclass
class Run:
    """The reports of one run, by rank and process."""

    job: str | None
    reports: list[RankReport] = field(default_factory=list)

    @functools.cached_property
    def by_rank(self) -> dict[int, RankReport]:
        """Of a rank with several processes, the one that called compiled graphs most."""
        found: dict[int, RankReport] = {}
        for report in self.reports:
            known = found.get(report.run.rank)
            if known is None or report.summary.graph_calls > known.summary.graph_calls:
                found[report.run.rank] = report
        return dict(sorted(found.items()))

    @property
    def world_size(self) -> int | None:
        """As the launcher or the process group has it; the largest where ranks disagree."""
        return max(filter(None, (report.run.world_size for report in self.reports)), default=None)

    @property
    def missing(self) -> list[range]:
        """Ranks without a report: killed, not ended yet, or they asked for no compilation."""
        size = self.world_size or 0
        # Not each by itself: a report may say that there are as many as a number can be.
        ends = [-1, *(rank for rank in self.by_rank if 0 <= rank < size), size]
        gaps = itertools.pairwise(ends)
        return [range(one + 1, other) for one, other in gaps if one + 1 < other]

    @property
    def not_ended(self) -> list[int]:
        """Ranks whose last report is a snapshot: killed since, or still running."""
        return [rank for rank, report in self.by_rank.items() if report.run.status == RUNNING]

    @property
    def hosts(self) -> list[str]:
        return sorted({report.run.host for report in self.reports if report.run.host is not None})

    @functools.cached_property
    def totals(self) -> Totals:
        summaries = [report.summary for report in self.reports]
        times = [report.compile.total_s for report in self.reports]
        return Totals(
            ranks=len(self.by_rank),
            processes=len(self.reports),
            graphs=sum(summary.graphs for summary in summaries),
            graph_calls=sum(summary.graph_calls for summary in summaries),
            backward_calls=sum(summary.backward_calls for summary in summaries),
            recompiles=sum(summary.recompiles for summary in summaries),
            compile_s=sum(times),
            longest_compile_s=max(times, default=0.0),
            wall_s=max(
                (report.run.wall_s for report in self.reports if report.run.wall_s is not None),
                default=None,
            ),
        )

    @functools.cached_property
    def divergences(self) -> list[Divergence]:
        """The first first; those whose time is unknown last."""
        found = []
        for (place, number), made in self._compilations.items():
            others = [rank for rank in self.by_rank if rank not in made]
            if not others:
                if number == 1:
                    continue  # when the ranks began
                made, others = _first_call(made)
            if others:
                found.append(self._divergence(place, number, made, others))
        return sorted(found, key=lambda one: (_or_last(one.started_at), one.number))

    @functools.cached_property
    def graphs_differ(self) -> list[GraphDifference]:
        found = []
        for (place, number), made in self._compilations.items():
            variants: dict[object, list[int]] = {}
            graphs = {rank: self._graphs(rank, one) for rank, one in made.items()}
            known = all(graph.kernels is not None for of in graphs.values() for graph in of)
            for rank, of in graphs.items():
                shape = tuple((g.direction, g.ops, g.kernels if known else None) for g in of)
                variants.setdefault(shape, []).append(rank)
            if len(variants) > 1:
                shown = [_variant(ranks, graphs[ranks[0]]) for ranks in variants.values()]
                shown.sort(key=lambda variant: (-len(variant.ranks), variant.ranks))
                found.append(GraphDifference(*place, number, shown))
        return found

    @functools.cached_property
    def caches_differ(self) -> CacheDifference | None:
        """None where all ranks were warm, or all cold."""
        hit: set[int] = set()
        missed: set[int] = set()
        seconds = dict.fromkeys(self.by_rank, 0.0)
        for made in self._compilations.values():
            if len(made) < len(self.by_rank):
                continue
            states = {
                rank: {graph.cache for graph in self._graphs(rank, one)}
                for rank, one in made.items()
            }
            cold = {rank for rank, state in states.items() if "miss" in state}
            warm = {rank for rank, state in states.items() if state == {"hit"}}
            if cold and warm:
                missed |= cold
                hit |= warm
                for rank, one in made.items():
                    seconds[rank] += self._seconds(rank, one) or 0.0
        warm_ranks = sorted(hit - missed)
        if not warm_ranks or not missed:
            return None
        hosts = {self.by_rank[rank].run.host for rank in missed}
        return CacheDifference(
            warm=warm_ranks,
            cold=sorted(missed),
            warm_s=max(seconds[rank] for rank in warm_ranks),
            cold_s=max(seconds[rank] for rank in missed),
            cold_hosts=sorted(filter(None, hosts)),
            waited=self._waited({rank: self._spans(rank) for rank in missed}, warm_ranks),
        )

    # --- How --------------------------------------------------------------------------------------

    @functools.cached_property
    def _compilations(self) -> dict[tuple[Function, int], dict[int, RankCompilation]]:
        """By function and its how many'th: the ranks that made it."""
        found: dict[tuple[Function, int], dict[int, RankCompilation]] = {}
        for rank, report in self.by_rank.items():
            numbers: dict[Function, int] = {}
            for one in report.compile.compilations:
                if one.direction == "forward" and one.outcome != AT_RUN_TIME:
                    number = numbers[one.place] = numbers.get(one.place, 0) + 1
                    found.setdefault((one.place, number), {})[rank] = one
        return found

    def _graphs(self, rank: int, compilation: RankCompilation) -> list[RankGraph]:
        numbered = self._numbered[rank]
        return [numbered[number] for number in compilation.graphs if number in numbered]

    @functools.cached_property
    def _numbered(self) -> dict[int, dict[int | None, RankGraph]]:
        return {
            rank: {graph.graph: graph for graph in report.graphs}
            for rank, report in self.by_rank.items()
        }

    def _divergence(
        self, place: Function, number: int, made: dict[int, RankCompilation], others: list[int]
    ) -> Divergence:
        first_rank = min(made, key=lambda rank: (_or_last(made[rank].started_at), rank))
        first = made[first_rank]
        later = self._compilations[place, number]
        seconds = [self._seconds(rank, one) for rank, one in made.items()]
        known = [took for took in seconds if took is not None]
        spans = {rank: self._of(rank, one) for rank, one in made.items()}
        return Divergence(
            *place,
            number=number,
            ranks=sorted(made),
            others=others,
            call=first.call,
            other_calls=sorted(
                {one.call for rank in others if (one := later.get(rank)) and one.call is not None}
            ),
            guard=first.guard,
            guard_file=first.guard_file,
            guard_line=first.guard_line,
            started_at=first.started_at,
            compile_s=max(known, default=None),
            waited=self._waited(spans, others),
        )

    def _belonging(self, rank: int, compilation: RankCompilation) -> list[RankCompilation]:
        """It, and the backward that was compiled for it later."""
        return [compilation, *self._backwards[rank].get(compilation.compile_id, ())]

    @functools.cached_property
    def _backwards(self) -> dict[int, dict[str, list[RankCompilation]]]:
        """By rank and compile id."""
        found: dict[int, dict[str, list[RankCompilation]]] = {}
        for rank, report in self.by_rank.items():
            of_rank = found[rank] = {}
            for one in report.compile.compilations:
                if one.direction == "backward" and one.outcome != AT_RUN_TIME:
                    of_rank.setdefault(one.compile_id, []).append(one)
        return found

    def _seconds(self, rank: int, compilation: RankCompilation) -> float | None:
        known = [one.total_s for one in self._belonging(rank, compilation)]
        return sum(s for s in known if s is not None) if any(s is not None for s in known) else None

    def _of(self, rank: int, compilation: RankCompilation) -> Spans:
        return [one.span for one in self._belonging(rank, compilation) if one.span is not None]

    def _spans(self, rank: int) -> Spans:
        """When it compiled."""
        compilations = self.by_rank[rank].compile.compilations
        return [one.span for one in compilations if one.span is not None]

    def _waited(self, compiling: dict[int, Spans], others: Sequence[int]) -> Waited | None:
        """For the rank that compiled longest, by the others: the longest."""
        rank = max(compiling, key=lambda rank: (_length(compiling[rank]), -rank))
        spans = compiling[rank]
        if not spans:
            return None
        met = self._met_after(rank, spans)
        found = []
        for other in others:
            seconds, by = self._met_in_collectives(met, other), COLLECTIVES
            if seconds is None:
                seconds, by = _length(_without(spans, self._spans(other))), COMPILATION
            found.append(Waited(seconds, by, other))
        # What collectives show is known better, where they show anything.
        shown = [one for one in found if one.by == COLLECTIVES] or found
        return max(shown, key=lambda one: (one.seconds, -one.rank), default=None)

    def _met_after(self, rank: int, spans: Spans) -> dict[_Collective, float]:
        """The collectives that the rank came to after it had compiled, and when."""
        return {
            (gap.next_group, gap.next_number): gap.end_at
            for gap in self.by_rank[rank].collectives
            if any(start <= gap.end_at and gap.start_at <= end for start, end in spans)
        }

    def _met_in_collectives(self, met: dict[_Collective, float], other: int) -> float | None:
        """From when ``other`` issued them, to that; None where no recorder has them."""
        waits = [
            max(0.0, met[gap.group, gap.number] - gap.start_at)
            for gap in self.by_rank[other].collectives
            if (gap.group, gap.number) in met
        ]
        return sum(waits) if waits else None


def runs(reports: Iterable[RankReport]) -> list[Run]:
    """By job, and where a job's ranks come again, by when they ran; each rank and process apart."""
    by_job: dict[tuple[str | None, int | None], list[RankReport]] = {}
    found = []
    for report in reports:
        if report.run.world_size is None:  # no rank of anything
            found.append(Run(report.run.job, [report]))
        else:
            by_job.setdefault((report.run.job, report.run.restart), []).append(report)
    for (job, _), members in by_job.items():
        ranks = [report.run.rank for report in members]
        again = len(set(ranks)) < len(ranks)
        for together in _by_time(members) if again else [members]:
            together.sort(key=lambda report: (report.run.rank, report.run.pid))
            found.append(Run(job, together))
    return sorted(found, key=lambda run: min((r.started_at or 0.0) for r in run.reports))


def _by_time(reports: list[RankReport]) -> list[list[RankReport]]:
    """Those that ran at the same time; a run of a job begins when all ranks of another are gone."""
    if any(report.started_at is None for report in reports):
        return [reports]
    found: list[list[RankReport]] = []
    end = float("-inf")
    for report in sorted(reports, key=lambda report: report.started_at or 0.0):
        if (report.started_at or 0.0) >= end:
            found.append([])
        found[-1].append(report)
        end = max(end, report.ended_at or 0.0)
    return found


def _first_call(
    made: dict[int, RankCompilation],
) -> tuple[dict[int, RankCompilation], list[int]]:
    """Those that made it in the first of their calls, and the ranks that made it in others."""
    calls = {rank: one.call for rank, one in made.items()}
    known = [call for call in calls.values() if call is not None]
    if len(known) < len(calls):
        return made, []
    first = min(known)
    early = {rank: one for rank, one in made.items() if calls[rank] == first}
    return early, [rank for rank in made if rank not in early]


def _or_last(at: float | None) -> float:
    return float("inf") if at is None else at


def _variant(ranks: list[int], graphs: list[RankGraph]) -> Variant:
    kernels = [graph.kernels for graph in graphs]
    return Variant(
        sorted(ranks),
        [graph.ops for graph in graphs],
        sum(len(names or ()) for names in kernels) if None not in kernels else None,
    )


def _without(spans: Spans, others: Spans) -> Spans:
    """The parts of the spans that are in none of the others."""
    rest = sorted(spans)
    for start, end in others:
        rest = [
            part
            for span in rest
            for part in ((span[0], min(span[1], start)), (max(span[0], end), span[1]))
            if part[0] < part[1]
        ]
    return rest


def _length(spans: Spans) -> float:
    """Of their union."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
