"""What a report books on what: the run's gaps, graphs and compilations, in seconds.

On a GPU that is behind the host (GPU-bound), eager ops and graphs take what they take on its
timeline: the host's own time is hidden there.
"""

from collections.abc import Callable, Iterable
from functools import cached_property

from instrumented_backend.records import (
    GPU_BOUND,
    CompileRecord,
    GapRecord,
    GraphRecord,
    RecompileRecord,
    Report,
)
from instrumented_backend.views.names import Names


class Run:
    """The report, and which of its gaps a step has claimed."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.wall_s = report.ledger.wall_s or report.run.wall_s or 0.0
        self.names = Names(report)
        self._claimed: set[int] = set()

    @cached_property
    def is_gpu_bound(self) -> bool:
        return any(gpu.verdict == GPU_BOUND for gpu in self.report.gpu.gpus)

    @cached_property
    def gpu_idle_s(self) -> float:
        """Known to be idle; of the GPU that is most."""
        return max((gpu.idle_s for gpu in self.report.gpu.gpus), default=0.0)

    def eager_s(self, gaps: Iterable[GapRecord]) -> float:
        """In eager ops."""
        return sum(gap.eager_time_us * self._gpu_part(gap) for gap in gaps) / 1e6

    def python_s(self, gaps: Iterable[GapRecord]) -> float:
        """Between eager ops; nothing is won there where the GPU is behind."""
        return 0.0 if self.is_gpu_bound else sum(gap.python_us for gap in gaps) / 1e6

    def _gpu_part(self, gap: GapRecord) -> float:
        """What its eager ops take where it counts, in parts of what they take on the host."""
        known_us = sum(line.time_us for line in gap.lines)
        if not self.is_gpu_bound or not known_us:
            return 1.0
        shares = (self._gpu_share.get((line.file, line.line), 1.0) for line in gap.lines)
        parts = (line.time_us * share for line, share in zip(gap.lines, shares, strict=True))
        return sum(parts) / known_us

    @cached_property
    def _gpu_share(self) -> dict[tuple[str | None, int | None], float]:
        """By line: its eager ops' time on the GPU, in parts of their time on the host."""
        return {
            (line.file, line.line): line.eager_gpu_us / line.eager_time_us
            for line in self.report.lines
            if line.eager_gpu_us is not None and line.eager_time_us
        }

    @cached_property
    def eager_known(self) -> str:
        return "exact" if self.report.ops.status == "exact" else "sampled"

    def gaps(self, wanted: Callable[[GapRecord], bool]) -> list[GapRecord]:
        """Those that no step has claimed yet."""
        return self.all_gaps(lambda gap: id(gap) not in self._claimed and wanted(gap))

    def all_gaps(self, wanted: Callable[[GapRecord], bool]) -> list[GapRecord]:
        """Those that a step has claimed, too: for what may go with a cause besides."""
        return [gap for gap in self.report.ops.gaps if not gap.in_data and wanted(gap)]

    def claim(self, gaps: Iterable[GapRecord]) -> None:
        self._claimed.update(map(id, gaps))

    def row_s(self, name: str) -> float:
        """A ledger row's seconds; 0 where they are unknown: nothing is said of it then."""
        return self.report.ledger.seconds(name) or 0.0

    def graphs_s(self, numbers: Iterable[int]) -> float:
        """In these graphs."""
        return sum(self._graph_s.get(number, 0.0) for number in set(numbers))

    @cached_property
    def _graph_s(self) -> dict[int | None, float]:
        return {
            graph.graph: ((self.is_gpu_bound and graph.gpu_time_us) or graph.time_us or 0.0) / 1e6
            for graph in self.report.graphs
        }

    def compiling_s(self, numbers: Iterable[int]) -> float:
        """What the compilations took that these graphs came from."""
        found = {id(one): one for n in set(numbers) for one in self._compilations.get(n, ())}
        return sum(record.total_s or 0.0 for record in found.values())

    def looking_up_s(self, record: RecompileRecord) -> float:
        """Python before the calls of its graphs: each call looks through all that were compiled."""
        numbers = {graph.graph for graph in self._graphs_of(record)}
        before = self.all_gaps(lambda gap: gap.to_graph in numbers and not gap.to_backward)
        return self.python_s(before)

    def first_calls_s(self, record: RecompileRecord) -> float:
        """What each graph's longest call takes more than its others: the first one loads kernels.

        Of one graph for all, one such call is left.
        """
        more = sorted(_longer_s(graph) for graph in self._graphs_of(record))
        return sum(more[1:])

    def _graphs_of(self, record: RecompileRecord) -> list[GraphRecord]:
        return [
            graph
            for graph in self.report.graphs
            if (graph.function, graph.file) == (record.function, record.file)
        ]

    def first_compiling_s(self, record: RecompileRecord) -> float:
        """What the compilation took of which these are the recompilations.

        0 where it was the run's first: most of that is torch's own beginning, which each program
        has once, and the rest is not known.
        """
        first = f"{record.compile_id.partition('/')[0]}/0"
        return max(
            (
                compilation.total_s or 0.0
                for compilation in self.report.compile.compilations[1:]
                if compilation.compile_id == first
                and (compilation.function, compilation.file) == (record.function, record.file)
            ),
            default=0.0,
        )

    @cached_property
    def _compilations(self) -> dict[int | None, list[CompileRecord]]:
        by_graph: dict[int | None, list[CompileRecord]] = {}
        for record in self.report.compile.compilations:
            for number in record.graphs:
                by_graph.setdefault(number, []).append(record)
        return by_graph


def _longer_s(graph: GraphRecord) -> float:
    calls = (
        (graph.calls, graph.forward_time_us, graph.longest_call_us),
        (graph.backward_calls, graph.backward_time_us, graph.longest_backward_us),
    )
    return sum(
        max(0.0, longest_us - (took_us - longest_us) / (count - 1)) / 1e6
        for count, took_us, longest_us in calls
        if count > 1 and took_us and longest_us
    )
