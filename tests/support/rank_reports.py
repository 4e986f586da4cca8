"""Reports of ranks by hand, with times on one clock."""

from typing import Any

from instrumented_backend.records import CacheStates, CollectiveGap, RunSection, SummarySection
from instrumented_backend.records.graphs import CodeRecord
from instrumented_backend.records.rank_reports import (
    RankCaches,
    RankCompilation,
    RankCompiling,
    RankGraph,
    RankReport,
)

FILE = "/src/train.py"


def compilation(
    start: float | None,
    seconds: float | None = 1.0,
    graph: int | None = None,
    *,
    function: str = "step",
    compile_id: str = "0/0",
    direction: str = "forward",
    **more: Any,
) -> RankCompilation:
    return RankCompilation(
        compile_id,
        direction,
        function,
        FILE,
        5,
        "compiled",
        [] if graph is None else [graph],
        seconds,
        start,
        **more,
    )


def graph(number: int, ops: int = 3, kernels: list[str] | None = None, cache: str = "hit") -> Any:
    names = ["cpp_0"] if kernels is None else kernels
    return RankGraph(number, ops=ops, code=[CodeRecord("forward", None, names)], cache=cache)


def gap(number: int, start: float, seconds: float) -> CollectiveGap:
    return CollectiveGap("0", number, "0", number + 1, start, seconds)


def rank_report(
    rank: int,
    *compilations: RankCompilation,
    graphs: tuple[RankGraph, ...] = (),
    gaps: tuple[CollectiveGap, ...] = (),
    calls: int = 10,
    recompiles: int = 0,
    **run: Any,
) -> RankReport:
    of_run = {"pid": 100 + rank, "world_size": 2, "job": "job", "wall_s": 60.0, **run}
    return RankReport(
        run=RunSection(torch="2.15.0", device="cpu", rank=rank, **of_run),
        summary=SummarySection(
            graphs=len(graphs),
            graph_calls=calls,
            backward_calls=0,
            graph_breaks=0,
            skipped_functions=0,
            recompiles=recompiles,
            graph_ops=0,
            captured_ops=None,
            total_ops=None,
            pct_ops=None,
            pct_time=None,
        ),
        graphs=list(graphs),
        caches=RankCaches(
            CacheStates(
                hit=sum(one.cache == "hit" for one in graphs),
                miss=sum(one.cache == "miss" for one in graphs),
                bypass=0,
                off=0,
            )
        ),
        compile=RankCompiling(sum(one.total_s or 0.0 for one in compilations), list(compilations)),
        collectives=list(gaps),
    )
