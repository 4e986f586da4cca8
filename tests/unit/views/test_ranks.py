"""The ranks of a run as text."""

import pytest
from rank_reports import compilation, gap, graph, rank_report

from instrumented_backend.records.rank_reports import RankReport
from instrumented_backend.records.ranks import Run
from instrumented_backend.views.ranks import MAX_SINGLE_ROWS, rank_names, render_ranks


def recompiled(rank: int, world: int = 2) -> RankReport:
    again = compilation(
        10.0,
        3.0,
        compile_id="0/1",
        call=20,
        guard="size of x in dimension 0: 4 → 5",
        guard_file="/src/train.py",
        guard_line=6,
    )
    gaps = (gap(7, 7.0, 6.5),)
    return rank_report(rank, compilation(0.0), again, recompiles=1, gaps=gaps, world_size=world)


def words(run: Run, width: int = 80) -> str:
    text = render_ranks(run, None, width)
    assert all(len(line) <= width for line in text.splitlines())
    return " ".join(text.split())


def test_what_is_told_of_a_recompile_on_one_rank() -> None:
    text = words(Run("SLURM_JOB_ID=17", [rank_report(0, compilation(0.0)), recompiled(1)]))
    assert text.startswith("instrumented: 2 ranks of SLURM_JOB_ID=17 rank graphs")
    assert (
        "ranks first differ: rank 1 recompiled step (/src/train.py:5) in call 20, rank 0 did not; "
        "guard: size of x in dimension 0: 4 → 5, at /src/train.py:6; it took 3.00 s, for which "
        "rank 0 waited 3.00 s at most"
    ) in text
    assert "missing" not in text


def test_the_wait_says_when_collectives_show_it() -> None:
    waits = rank_report(0, compilation(0.0), gaps=(gap(8, 11.0, 2.6),))
    text = words(Run(None, [waits, recompiled(1)]))
    assert "and rank 0 waited 2.50 s in a collective at most" in text


def test_missing_ranks_are_named() -> None:
    reports = [rank_report(rank, world_size=8) for rank in (0, 1, 3, 4)]
    text = words(Run(None, reports))
    assert text.startswith("instrumented: 4 of 8 ranks rank graphs")
    assert "missing: ranks 2, 5-7 of 8 left no report here: killed, still running" in text


def test_a_rank_that_left_a_snapshot_has_not_ended() -> None:
    killed = rank_report(1, status="running", seen_at=1_790_000_000.0)
    text = words(Run(None, [rank_report(0), killed]))
    assert "missing" not in text
    assert (
        "not ended: rank 1 left what was known at 2026-09-21 14:13:20 UTC: killed since, or still "
        "running"
    ) in text


def test_another_module_with_the_same_code_is_no_recompile() -> None:
    """Stages of a pipeline that have different numbers of layers."""
    layers = [compilation(float(n), call=1, compile_id=f"0/{n}") for n in range(3)]
    text = words(Run(None, [rank_report(0, *layers[:2]), rank_report(1, *layers)]))
    assert "rank 1 compiled step (/src/train.py:5), compilation 3 in call 1, rank 0 did not" in text


def test_several_processes_of_a_rank_have_their_names() -> None:
    text = words(Run(None, [rank_report(0), rank_report(0, pid=7, worker="Loader"), recompiled(1)]))
    assert "3 processes, 2 ranks" in text and "Loader" in text and " pid " in text


def test_of_very_many_ranks_those_that_are_alike_share_a_row() -> None:
    many = [rank_report(rank, world_size=1000) for rank in range(1000) if rank != 617]
    text = render_ranks(Run(None, [*many, recompiled(617, 1000)]), None, 80)
    rows = [line for line in text.splitlines() if line[:1].isdigit()]
    assert [row.split("  ")[0] for row in rows] == ["617", "0-616, 618-999"]
    few = [rank_report(rank, world_size=MAX_SINGLE_ROWS) for rank in range(MAX_SINGLE_ROWS)]
    text = render_ranks(Run(None, few), None, 80)
    assert text.count("\n") > MAX_SINGLE_ROWS


def test_the_first_recompile_is_named_among_many_first_compilations() -> None:
    """Each rank has a part of its own of the model."""
    reports = [
        rank_report(
            rank,
            *(compilation(0.1 * n, function=f"stage{rank}.{n}") for n in range(5)),
            *(
                [compilation(1.0), compilation(9.0, compile_id="0/1")]
                if rank
                else [compilation(1.0)]
            ),
        )
        for rank in (0, 1)
    ]
    text = words(Run(None, reports))
    assert "ranks first differ: rank 0 compiled stage0.0" in text
    assert "ranks differ: rank 1 recompiled step" in text
    assert "8 more compilations differ between ranks" in text


def test_caches_and_graphs_that_differ() -> None:
    cold = graph(0, ops=5, cache="miss")
    text = words(
        Run(
            None,
            [
                rank_report(0, compilation(0.0, 1.0, 0), graphs=(graph(0),), host="a"),
                rank_report(1, compilation(0.0, 8.0, 0), graphs=(cold,), host="b"),
            ],
        )
    )
    assert "on 2 hosts" in text
    assert "caches: cold on rank 1 (b), warm on rank 0: compiled in 8.00 s against 1.00 s" in text
    assert (
        "different graphs for step (/src/train.py:5): rank 0: 1 graph of 3 ops, 1 kernel; "
        "rank 1: 1 graph of 5 ops, 1 kernel"
    ) in text


def test_names_of_others_move_no_cursor() -> None:
    text = render_ranks(Run("a\x1b[2J", [rank_report(0, host="\x1b[31m"), recompiled(1)]), None, 80)
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([3], "3"),
        ([2, 0, 1], "0-2"),
        ([0, 2, 3, 9], "0, 2-3, 9"),
        (list(range(0, 40, 2)), "0, 2, 4, 6, 8, 10, 12, 14 and 12 more"),
    ],
)
def test_names_of_ranks(ranks: list[int], said: str) -> None:
    assert rank_names(ranks) == said
