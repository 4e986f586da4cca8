"""Reports of a run read together: which belong together, who is missing, where ranks differ."""

import json
from pathlib import Path

import pytest
from rank_reports import compilation, gap, graph, rank_report
from sample_report import sample

from instrumented_backend.records import ReportError, read_rank, read_runs
from instrumented_backend.records.rank_reports import RankReport
from instrumented_backend.records.ranks import Run, runs

RECOMPILED = {"compile_id": "0/1", "call": 20, "guard": "size of x: 4 → 5", "guard_line": 6}


def run(*reports: RankReport) -> Run:
    (found,) = runs(reports)
    return found


# --- Which belong together ----------------------------------------------------------------------


def test_runs_are_told_apart_by_job_and_restart() -> None:
    found = runs(
        [
            rank_report(0, job="a", restart=0, started="2026-01-01T00:00:00+00:00"),
            rank_report(0, job="b", restart=0, started="2026-01-01T00:00:01+00:00"),
            rank_report(0, job="a", restart=1, started="2026-01-01T00:00:02+00:00"),
            rank_report(1, job="a", restart=0, started="2026-01-01T00:00:03+00:00"),
        ]
    )
    assert [[report.run.rank for report in one.reports] for one in found] == [[0, 1], [0], [0]]
    assert [one.job for one in found] == ["a", "b", "a"]


def test_a_job_whose_ranks_come_again_is_parted_by_time() -> None:
    """The killed rank 1 of the first run left nothing: the second one's is not taken for it."""
    first = rank_report(0, started="2026-01-01T00:00:00+00:00", wall_s=5.0, pid=1)
    second = [
        rank_report(rank, started=f"2026-01-01T00:00:1{1 - rank}+00:00", wall_s=5.0, pid=2)
        for rank in (0, 1)
    ]
    found = runs([*second, first])
    assert [[report.run.pid for report in one.reports] for one in found] == [[1], [2, 2]]
    assert [one.missing for one in found] == [[range(1, 2)], []]


def test_what_is_no_rank_stands_alone() -> None:
    """Two programs of one job's script that have nothing to do with each other."""
    found = runs([rank_report(0, world_size=None, pid=pid) for pid in (1, 2)])
    assert [len(one.reports) for one in found] == [1, 1]
    assert [one.missing for one in found] == [[], []]


def test_a_rank_with_several_processes() -> None:
    busy = rank_report(1, compilation(0.0), calls=10, pid=5)
    found = run(rank_report(0, compilation(0.0)), rank_report(1, calls=1, pid=4), busy)
    assert found.by_rank[1] is busy
    assert found.divergences == []
    assert (found.totals.ranks, found.totals.processes) == (2, 3)


def test_missing_ranks_are_those_of_the_world() -> None:
    assert run(*(rank_report(rank, world_size=6) for rank in (0, 2, 5))).missing == [
        range(1, 2),
        range(3, 5),
    ]
    assert run(rank_report(3, world_size=None)).missing == []


def test_totals() -> None:
    totals = run(
        rank_report(0, compilation(0.0, 2.0), recompiles=1, calls=7, wall_s=9.0),
        rank_report(1, compilation(0.0, 0.5), calls=4, wall_s=None),
    ).totals
    assert (totals.graph_calls, totals.recompiles) == (11, 1)
    assert (totals.compile_s, totals.longest_compile_s, totals.wall_s) == (2.5, 2.0, 9.0)


# --- Where they differ --------------------------------------------------------------------------


def test_ranks_that_did_the_same_do_not_differ() -> None:
    same = [
        rank_report(
            rank,
            compilation(0.0 + rank, 1.0, 0, call=1),
            compilation(9.0, 1.0, 1, compile_id="0/1", call=20),
            graphs=(graph(0), graph(1, ops=4)),
        )
        for rank in (0, 1)
    ]
    found = run(*same)
    assert (found.divergences, found.graphs_differ, found.caches_differ) == ([], [], None)


def test_a_recompile_on_one_rank() -> None:
    """Rank 0 waits for it as long as it takes, but for the second that it compiles g itself."""
    found = run(
        rank_report(
            0, compilation(0.0), compilation(10.5, 1.0, function="g", compile_id="1/0", call=1)
        ),
        rank_report(
            1,
            compilation(0.0),
            compilation(10.0, 3.0, **RECOMPILED),
            compilation(13.0, 2.0, compile_id="0/1", direction="backward"),
            compilation(20.0, 1.0, function="g", compile_id="1/0", call=1),
        ),
    )
    (one,) = found.divergences
    assert (one.function, one.line, one.number, one.ranks, one.others) == ("step", 5, 2, [1], [0])
    assert (one.call, one.guard, one.guard_line) == (20, "size of x: 4 → 5", 6)
    assert one.compile_s == 5.0  # its backward, too
    assert one.waited is not None
    assert (one.waited.seconds, one.waited.by, one.waited.rank) == (4.0, "compilation", 0)


def test_what_collectives_show_of_a_wait() -> None:
    """Rank 0 issued number 8 at 11.0, four seconds after its 7; rank 1 did at 13.5."""
    found = run(
        rank_report(0, compilation(0.0), gaps=(gap(7, 7.0, 4.0), gap(8, 11.0, 2.6))),
        rank_report(
            1,
            compilation(0.0),
            compilation(10.0, 3.0, **RECOMPILED),
            gaps=(gap(6, 6.0, 1.0), gap(7, 7.0, 6.5), gap(8, 13.5, 0.1)),
        ),
    )
    (one,) = found.divergences
    assert one.waited is not None and one.waited.by == "collectives"
    assert one.waited.seconds == pytest.approx(2.5)


def test_nobody_waits_where_the_times_are_unknown() -> None:
    """Reports of releases that did not write them: still named, in the order of the run."""
    old = {**RECOMPILED, "call": None}
    found = run(
        rank_report(0, compilation(None, None)),
        rank_report(1, compilation(None, None), compilation(None, None, **old)),
    )
    (one,) = found.divergences
    assert (one.compile_s, one.waited, one.started_at) == (None, None, None)


def test_a_recompile_in_different_calls_is_a_difference() -> None:
    """Each made others wait: both have it, and at another time."""
    found = run(
        *(
            rank_report(
                rank, compilation(0.0, call=1), compilation(5.0, compile_id="0/1", call=call)
            )
            for rank, call in ((0, 5), (1, 20))
        )
    )
    (one,) = found.divergences
    assert (one.ranks, one.others, one.call, one.other_calls) == ([0], [1], 5, [20])


def test_the_first_divergence_is_the_first() -> None:
    found = run(
        rank_report(0, compilation(0.0), compilation(30.0, function="late", compile_id="1/0")),
        rank_report(1, compilation(0.0), compilation(20.0, **RECOMPILED)),
    )
    assert [(one.function, one.ranks) for one in found.divergences] == [
        ("step", [1]),
        ("late", [0]),
    ]


def test_other_compile_ids_are_no_difference() -> None:
    """One rank compiled a function more: all ids after it are others."""
    found = run(
        rank_report(0, compilation(0.0), compilation(1.0, function="g", compile_id="1/0")),
        rank_report(
            1,
            compilation(0.0, function="extra"),
            compilation(1.0, compile_id="1/0"),
            compilation(2.0, function="g", compile_id="2/0"),
        ),
    )
    assert [(one.function, one.ranks) for one in found.divergences] == [("extra", [1])]


def test_run_time_work_is_no_compilation() -> None:
    tuned = compilation(5.0, 1.0)
    tuned.outcome = "run time"
    assert run(rank_report(0, tuned), rank_report(1)).divergences == []


@pytest.mark.parametrize(
    ("graphs", "differ"),
    [
        (graph(0, ops=3), False),
        (graph(0, ops=4), True),
        (graph(0, kernels=["cpp_0", "cpp_1"]), True),
    ],
)
def test_different_graphs_for_one_function(graphs: object, differ: bool) -> None:
    found = run(
        *(rank_report(rank, compilation(0.0, 1.0, 0), graphs=(graph(0),)) for rank in (0, 2)),
        rank_report(1, compilation(0.0, 1.0, 0), graphs=(graphs,)),
    )
    assert bool(found.graphs_differ) == differ
    if differ:
        (difference,) = found.graphs_differ
        assert [variant.ranks for variant in difference.variants] == [[0, 2], [1]]


def test_kernels_that_are_unknown_are_no_difference() -> None:
    unknown = graph(0)
    unknown.code[0].kernels = None
    found = run(
        rank_report(0, compilation(0.0, 1.0, 0), graphs=(graph(0),)),
        rank_report(1, compilation(0.0, 1.0, 0), graphs=(unknown,)),
    )
    assert found.graphs_differ == []


def test_cold_and_warm_caches() -> None:
    """The recompile of rank 1 alone is a miss, and does not make the rank cold."""
    found = run(
        rank_report(0, compilation(0.0, 1.0, 0), graphs=(graph(0),), world_size=4, host="a"),
        rank_report(
            1,
            compilation(0.0, 1.5, 0),
            compilation(50.0, 9.0, 1, **RECOMPILED),
            graphs=(graph(0), graph(1, cache="miss")),
            world_size=4,
            host="a",
        ),
        *(
            rank_report(
                rank,
                compilation(0.0, 8.0, 0),
                graphs=(graph(0, cache="miss"),),
                world_size=4,
                host="b",
            )
            for rank in (2, 3)
        ),
    )
    caches = found.caches_differ
    assert caches is not None
    assert (caches.warm, caches.cold, caches.cold_hosts) == ([0, 1], [2, 3], ["b"])
    assert (caches.warm_s, caches.cold_s) == (1.5, 8.0)
    assert caches.waited is not None and caches.waited.seconds == 7.0  # rank 0


def test_all_cold_is_no_difference() -> None:
    found = run(
        *(
            rank_report(rank, compilation(0.0, 1.0, 0), graphs=(graph(0, cache="miss"),))
            for rank in (0, 1)
        )
    )
    assert found.caches_differ is None


# --- Files --------------------------------------------------------------------------------------


def test_of_a_file_only_what_is_compared_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "report.rank0.pid17.json"
    path.write_text(sample().to_json())
    assert read_rank(path) == RankReport.of(sample())
    report = read_rank(path)
    assert RankReport.from_bytes(report.to_bytes()) == report
    assert (report.graphs[0].ops, report.graphs[0].kernels) == (7, ("cpp_fused_add_0",))


def test_a_name_that_is_no_utf_8(tmp_path: Path) -> None:
    """As Python has the bytes of a file's name that are none: msgspec's reader refuses it."""
    report = sample()
    report.compile.compilations[0].file = "/home/m\udcff/model.py"
    path = tmp_path / "report.rank0.pid17.json"
    path.write_text(report.to_json())
    assert read_rank(path).compile.compilations[0].file == "/home/m\udcff/model.py"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": 2}, "schema_version is 2"),
        ({"graphs": [{"ops": "three"}]}, "graphs[0].ops: expected int | null, got str"),
        ({"run": None}, "run: expected object, got null"),
    ],
)
def test_what_is_no_report_is_refused_with_its_place(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    data = json.loads(sample().to_json())
    (tmp_path / "report.rank0.pid1.json").write_text(json.dumps({**data, **change}))
    (tmp_path / "report.rank1.pid1.json").write_bytes(b"\xff")
    (tmp_path / "report.rank2.pid1.json").write_text(json.dumps(data))
    found, errors = read_runs(tmp_path)
    assert len(found) == 1 and len(errors) == 2
    assert said in str(errors[0]) and "report.rank0.pid1.json" in str(errors[0])
    assert "not text" in str(errors[1])
    with pytest.raises(ReportError, match=r"report\.rank1"):
        read_rank(tmp_path / "report.rank1.pid1.json")
