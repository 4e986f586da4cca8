"""Counts in programs whose truth is known (`benchmarks/truth_programs`): each op, by its name."""

import json
from pathlib import Path
from typing import Any

import pytest
from paths import BENCHMARKS
from programs import RunProgram
from proof import truth, truth_run

MODES = ("auto", "always")
MEASURED = """
    import sys
    sys.path.insert(0, {benchmarks!r})
    from truth_programs.measured import measured
    measured({program!r}, "cpu", long=False, few={turns})
"""
ORACLE = """
    import json, pathlib, sys
    sys.path.insert(0, {benchmarks!r})
    from truth_programs.oracle import counted
    pathlib.Path("oracle.json").write_text(json.dumps(counted({program!r}, "cpu")))
"""

Known = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def known() -> Known:
    """What the oracle said, by program."""
    return {}


def about(n: int, pct: float, spread: float) -> Any:
    """Within so many percent; or, as on a machine whose speed changes, four standard errors.

    How often it is within two, and how large they are, is `benchmarks/truth.py`'s to tell.
    """
    return pytest.approx(n, rel=pct / 100, abs=2 * spread)


def counts_are_exact(
    run: RunProgram, folder: Path, known: Known, program: str, turns: int, mode: str
) -> None:
    """Those of each eager op, and of the captured ops together.

    Of a run that windows have sampled: of each op that is one in a hundred, `about`.
    """
    names = {"benchmarks": str(BENCHMARKS), "program": program, "turns": turns}
    if program not in known:
        run(ORACLE.format(**names))
        known[program] = json.loads((folder / "oracle.json").read_text())
    reports = folder / "measured"
    run(
        MEASURED.format(**names),
        env={
            "INSTRUMENTED_OPS": None if mode == "auto" else mode,
            "INSTRUMENTED_DIR": str(reports),
        },
    )
    found = truth_run.run_of(reports, known[program])
    assert found.report["summary"]["captured_ops"] == found.captured_ops
    eager = {record["op"]: record["count"] for record in found.report["ops"]["eager"]}
    total = found.eager.total()
    if found.report["ops"]["status"] == "exact":
        assert eager == dict(found.eager)
    else:
        assert mode == "auto"
        spread = {record["op"]: record["count_spread"] for record in found.report["ops"]["eager"]}
        assert sum(eager.values()) == about(total, truth.OPS_PCT, sum(spread.values()))
        many = {op: n for op, n in found.eager.items() if n >= truth.LISTED_PCT / 100 * total}
        wanted = {op: about(n, truth.COUNT_PCT, spread.get(op, 0)) for op, n in many.items()}
        assert {op: eager.get(op) for op in many} == wanted


@pytest.mark.parametrize("mode", MODES)
def test_counts_in_a_static_loop(
    run_forked: RunProgram, tmp_path: Path, known: Known, mode: str
) -> None:
    counts_are_exact(run_forked, tmp_path, known, "inference", 100, mode)


@pytest.mark.full
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("program", "turns"),
    [
        ("steps-60", 60),
        ("six-calls", 200),
        ("blocks", 200),
        ("plain-loop", 1000),
        ("generation", 60),
        ("server", 60),
    ],
)
def test_counts(
    run_forked: RunProgram,
    tmp_path: Path,
    known: Known,
    program: str,
    turns: int,
    mode: str,
) -> None:
    counts_are_exact(run_forked, tmp_path, known, program, turns, mode)


@pytest.mark.full
@pytest.mark.parametrize(
    "program", ["accumulation", "evaluation", "gan", "lengths", "loader", "threads"]
)
def test_counts_of_all_ops(
    run_forked: RunProgram, tmp_path: Path, known: Known, program: str
) -> None:
    counts_are_exact(run_forked, tmp_path, known, program, 30, "always")


@pytest.mark.full
@pytest.mark.parametrize("mode", MODES)
def test_counts_by_line(run_forked: RunProgram, mode: str) -> None:
    """The same op on several lines, and after two calls of the same graph in a step."""
    turns = 12
    names = {"benchmarks": str(BENCHMARKS), "program": "diffusion", "turns": turns}
    variables = {"INSTRUMENTED_OPS": None if mode == "auto" else mode}
    report = run_forked(MEASURED.format(**names), env=variables).report
    missing = report["ops"]["missing"]
    found = {(record["op"], record["line"]): record for record in missing}
    source = (BENCHMARKS / "truth_programs" / "serving.py").read_text().splitlines()
    parts = [
        "plain = x * 0.9",
        "3 * (guided - unguided)",
        "- both * 0.1",
        "0.01 * torch.randn_like",
    ]
    lines = [next(n for n, line in enumerate(source, 1) if part in line) for part in parts]
    of_lines = [found["aten::mul", line] for line in lines]
    if mode == "always":
        assert [record["count"] for record in of_lines] == [50 * turns] * len(lines)
    for record in of_lines:
        assert record["count"] == about(50 * turns, truth.COUNT_PCT, record["count_spread"])
