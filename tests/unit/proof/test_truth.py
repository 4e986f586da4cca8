"""What the benchmark of truth computes of reports, and of what programs and their oracle know."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from proof import truth
from proof.spreads import Spreads
from proof.truth import Row, row_of
from proof.truth_run import EagerTimes, Run
from truth_programs import oracle
from truth_programs.looking import Turns
from truth_programs.run import FIRST
from truth_programs.run import Run as ProgramsRun


def run_with(
    count: int = 100, pct_time: float = 60.0, spread: float = 0.0, **rows: tuple[float, float]
) -> Run:
    """400 captured ops, 100 others of one name; 10 s of wall time, in rows with their spreads."""
    ledger = [
        {"row": row, "threads": "main", "seconds": seconds, "spread_s": spread_s}
        for row, (seconds, spread_s) in rows.items()
    ]
    record = {"op": "aten::add", "count": count, "share_pct": 100.0, "op_time_pct": 40.0}
    record["time_us"] = 10 * (100 - pct_time)
    line = {**record, "file": "/x/train.py", "line": 3}
    report = {
        "summary": {
            "captured_ops": 400,
            "total_ops": 400 + count,
            "pct_ops": 100 * 400 / (400 + count),
            "pct_time": pct_time,
        },
        "ops": {
            "status": "sampled",
            "captured": {"time_us": 10 * pct_time},
            "total_time_us": 1000.0,
            "eager": [{**record, "count_spread": spread}],
            "missing": [line],
            "pct_ops_spread": spread,
            "pct_time_spread": spread,
        },
        "ledger": {"wall_s": 10.0 if rows else None, "rows": ledger},
        "graphs": [],
    }
    known: dict[str, Any] = {"startup_s": 2.0, "compile_s": 1.0, "wall_s": 10.0, "exit_s": 10.2}
    known.update(spent_s={"data": 0.5, "sleep": 3.0}, main_graphs_s=4.0)
    return Run(report, known, Counter({"aten::add": 100}), 400)


def on_gpu(ahead: float, busy: float, clock: str = "HostClock") -> Run:
    """8 s of steps after 1 s of first ones, and 1 s that was waited for at the end, of 20 s."""
    run = run_with()
    run.report["gpu"] = {"timeline_s": 20.0, "gpus": [{"captured_pct": 41.0}]}
    run.truth.update(part_s={"warm-up": 1.0, "step": 8.0}, clock=clock, graphs_s=6.0)
    run.truth["clock_s"] = 0.4
    run.truth["spent_s"]["synchronize"] = 1.0
    run.truth["parts"] = {"warm-up": FIRST, "step": 800 + FIRST}
    host = {"first_s": 1.0, "turns_ahead": ahead}
    kernels = {"shares": {"step": 0.8}, "each_s": {"step": 0.0085}, "busy": busy}
    run.gpu = {"host": host, "kernels": kernels}
    return run


def test_a_gpu_that_waits_for_the_host_is_the_hosts() -> None:
    run = on_gpu(0.2, busy=0.2)
    assert not run.gpu_is_bound
    # 6 s, and up to 0.4 in what is called in the graphs' place.
    assert run.gpu_truths() == (pytest.approx(30), pytest.approx(32))
    assert run.gpu_pair() == (41, pytest.approx(32))


@pytest.mark.parametrize("ahead, busy", [(7, 0.2), (0, 0.9)])
def test_a_gpu_that_is_the_limit_is_its_kernels(ahead: float, busy: float) -> None:
    """A second at first, then 800 times 8.5 ms of kernels, or 0.8 of 9 s; on ranks, by events."""
    run = on_gpu(ahead, busy)
    assert run.gpu_is_bound
    assert run.gpu_truths() == (pytest.approx(39), pytest.approx(41))
    assert on_gpu(ahead, busy, clock="StreamClock").gpu_truths()[1] == pytest.approx(32)


def test_the_median_is_by_the_errors_sign() -> None:
    # 1 below, 2 above and 8 above: the median run is 2 above, the worst 8 off.
    row = row_of("p", "f", "auto", [(49, 50), (58, 50), (52, 50)], 2, in_points=True)
    assert (row.ours, row.error, row.worst, row.ok) == (52, 2, 8, True)
    assert row.cells[-4:] == ["2.00", "8.00", "2 points", "ok"]


def test_unknown_in_one_run_is_unknown() -> None:
    row = row_of("p", "f", "auto", [(49, 50), (None, 50)], 2)
    assert row.ours is None and not row.ok and row.cells[-3] == "-"


def in_calls_of(mean_us: float, eager_ops: int = 100) -> Run:
    """Ten calls, and one that took a second; so many eager ops by the oracle."""
    run = run_with()
    graph = {"graph": 0, "calls": 11, "forward_time_us": 10 * mean_us + 1e6}
    graph.update(longest_call_us=1e6, backward_calls=0, longest_backward_us=None)
    run.report["graphs"] = [graph]
    run.eager = Counter({"aten::add": eager_ops})
    return run


def test_eager_times_are_as_fast_as_the_runs_graphs_are() -> None:
    """400 us in `always`; half as long where calls take half as long, twice for twice as many."""
    times = EagerTimes([in_calls_of(50)])
    assert times.captured_pct(in_calls_of(50)) == pytest.approx(100 * 600 / 1000)
    assert times.captured_pct(in_calls_of(25)) == pytest.approx(100 * 600 / 800)
    twice = times.captured_pct(in_calls_of(50, eager_ops=200))
    assert twice == pytest.approx(100 * 600 / 1400)


def test_eager_work_that_lasts_for_so_long_is_as_long_however_fast() -> None:
    slow, fast = in_calls_of(50), in_calls_of(25, eager_ops=200)
    for run, lasted in ((slow, 4.0), (fast, 5.0)):
        run.truth["spent_s"]["eager"] = lasted
    assert EagerTimes([slow]).captured_pct(fast) == pytest.approx(100 * 600 / 1100)


def test_what_seeing_ops_takes_of_such_a_stretch_is_no_op() -> None:
    """A fifth of the 4 s: without it, ops would have had 500 us of them."""
    seen, unseen = in_calls_of(50), in_calls_of(50)
    seen.slower = 1.25
    for run in (seen, unseen):
        run.truth["spent_s"]["eager"] = 4.0
    assert EagerTimes([seen]).captured_pct(unseen) == pytest.approx(100 * 600 / 1100)


class Looks:
    """A part that takes 1 ms, and 1.5 ms while ops are seen; after a change, 5 ms for so long."""

    def __init__(self, settling: int) -> None:
        self.now_s = 0.0
        self.looks: list[bool] = []
        self._settling, self._since = settling, 0

    def look(self, on: bool) -> None:
        self.looks.append(on)
        self._since = 0

    def work(self) -> None:
        settles = self._since < self._settling
        self.now_s += 5e-3 if settles else 1.5e-3 if self.looks and self.looks[-1] else 1e-3
        self._since += 1


def test_turns_that_are_seen_and_unseen_tell_what_seeing_takes() -> None:
    """Neither a turn's beginning, nor a part's first times, nor other parts are counted."""
    program = Looks(settling=2)
    turns = Turns("eager", program.look, clock=lambda: program.now_s)
    for number in range(1000):
        with turns.watch("eager", number):
            program.work()
        with turns.watch("step", number):
            program.now_s += 1e-3
    assert turns.slower() == pytest.approx(1.5)
    assert program.looks[:4] == [True, False, True, False]


def test_an_op_with_a_clock_is_as_long_as_that_says_however_fast_the_host() -> None:
    """400 us of eager ops in `always`, 300 of them in one that waits: the others take half."""
    slow, fast = in_calls_of(50), in_calls_of(25)
    for run, waited_us in ((slow, 300), (fast, 350)):
        run.truth["spent_s"]["aten::item"] = 1e-6 * waited_us
    times = EagerTimes([slow])
    assert times.captured_pct(fast) == pytest.approx(100 * 600 / (600 + 350 + 50))
    for name in ("aten::item", "aten::item at train.py:3"):
        assert times.pct(fast, Run.op_times, name) == pytest.approx(100 * 350 / 1000)


def test_python_is_the_rest_of_the_main_thread_wherever_is_compiled() -> None:
    """Of 2 s that torch has compiled, one is another thread's."""
    run = run_with(**LEDGER)
    alone_pct = run.sampled_pct("python", 1.0)
    run.truth["compile_s"] = 2.0
    others = {"row": "compile", "threads": "other", "seconds": 1.0, "spread_s": 0.0}
    run.report["ledger"]["rows"].append(others)
    assert run.sampled_pct("python", 1.0) == pytest.approx(alone_pct)


def rows_by_figure(auto: Run, always: Run) -> dict[tuple[str, str], Row]:
    rows = truth.rows_of("p", {"auto": [auto], "always": [always]})
    return {(row.figure, row.cache): row for row in rows}


LEDGER = {
    "startup": (2.0, 0.0),
    "compile": (1.0, 0.0),
    "captured": (2.0, 0.0),
    "eager_ops": (1.0, 0.1),
    "data": (0.5, 0.0),
    "python": (3.5, 0.1),
}


def test_rows_of_a_program() -> None:
    rows = rows_by_figure(run_with(103, 63.0, **LEDGER), run_with(100, **LEDGER))
    assert rows["captured ops", "auto"].ok and rows["captured ops", "always"].ok
    # 103 for 100, in all and of the one name.
    assert rows["eager ops", "auto"].error == 3 and not rows["eager ops", "auto"].ok
    assert not rows["count of aten::add", "auto"].ok and rows["count of aten::add", "always"].ok
    # 630 us were captured, and 100 eager ops take 400 by `always`.
    assert rows["op time, %", "auto"].oracle == pytest.approx(100 * 630 / 1030)
    assert rows["aten::add, %", "auto"].oracle == pytest.approx(100 * 400 / 1030)
    assert rows["aten::add at train.py:3, %", "auto"].ok
    # 2 s of 10 for the 4 that the oracle's clock says; the rest as known.
    assert rows["ledger: captured, %", "auto"].error == pytest.approx(20)
    for name in ("startup", "compile", "eager_ops", "data"):
        assert rows[f"ledger: {name}, %", "auto"].error == pytest.approx(0)
    # The rest: 10 less 2, 1, 4, 1 and 0.5 s. What is missing in graphs is too much there.
    assert rows["ledger: python, %", "auto"].oracle == pytest.approx(15)
    assert rows["ledger: python, %", "auto"].error == pytest.approx(20)
    assert rows["ledger: python, and what slept, %", "auto"].error == 0  # 35 for at least 30
    assert rows["ledger: explained, %", "auto"].ok and rows["ledger: wall, s", "auto"].ok


def test_without_a_ledger_its_rows_are_off() -> None:
    rows = rows_by_figure(run_with(), run_with())
    off = [figure for (figure, _), row in rows.items() if not row.ok]
    assert off and all(figure.startswith("ledger") for figure in off)


def test_the_ledger_explains_98_percent() -> None:
    less = {**LEDGER, "python": (3.2, 0.1)}  # 9.7 s of 10
    row = rows_by_figure(run_with(**less), run_with(**LEDGER))["ledger: explained, %", "auto"]
    assert not row.ok and row.ours == pytest.approx(97)
    less = {**LEDGER, "data": (-0.1, 0.0)}
    assert not rows_by_figure(run_with(**less), run_with())["ledger: least row, %", "auto"].ok


def test_truth_in_the_printed_spread() -> None:
    always = [run_with(pct_time=59, **LEDGER), run_with(pct_time=61, **LEDGER)]
    spreads = Spreads()
    # 635 of 1025 to 1045 us are captured: 1.5 beside that range, and 3 calls off.
    spreads.add([run_with(103, 63.5, spread=1.0, **LEDGER)], always)
    spreads.add([run_with(103, 63.5, spread=3.0, **LEDGER)], always)
    pct = {row.figure.split(":")[0]: row.ours for row in spreads.rows()}
    # 400 of 503 ops is 79.5 % for 80, inside either spread.
    ledger = "ledger of eager ops, %"  # 1.0 for 1.0 s
    assert pct == {"ops, %": 100, "op time, %": 50, "count of an op": 50, ledger: 100}
    assert {row.figure.split(":")[0] for row in spreads.rows() if row.ok} == {"ops, %", ledger}
    # Of one that saw all, times are its own.
    all_seen = run_with(103, 63.5, spread=0.0, **LEDGER)
    all_seen.report["ops"]["status"] = "exact"
    spreads.add([all_seen], always)
    numbers = {row.figure.split(":")[0]: row.figure.split(" ")[-1] for row in spreads.rows()}
    assert numbers == {"ops, %": "3", "op time, %": "2", "count of an op": "3", ledger: "2"}


def test_the_ledgers_spread_holds_another_run_that_compiled_longer() -> None:
    """Eager ops took 1.05 s there, of 14: here that is 10.5 % of 10 s, for 10 +- 1."""
    for seconds, inside in ((1.05, 100), (1.2, 0)):
        slower = run_with(**{**LEDGER, "compile": (5.0, 0.0), "eager_ops": (seconds, 0.0)})
        slower.report["ledger"]["wall_s"] = 14.0
        spreads = Spreads()
        spreads.add([run_with(**LEDGER)], [slower])
        found = {row.figure.split(":")[0]: row.ours for row in spreads.rows()}
        assert found["ledger of eager ops, %"] == inside


# --- The oracle ---------------------------------------------------------------------------------


def event(name: str, start: int, duration: int, scope: int = 0) -> Any:
    return SimpleNamespace(
        name=lambda: name,
        start_ns=lambda: start,
        duration_ns=lambda: duration,
        start_thread_id=lambda: 1,
        scope=lambda: scope,
    )


def test_ops_outside_regions_and_compilations() -> None:
    events = [
        event("Optimizer.step#AdamW.step", 0, 30, scope=7),
        event("aten::add", 1, 5),
        event("aten::empty", 2, 1),
        event("TORCHDYNAMO", 40, 20, scope=7),
        event("aten::mm", 41, 5),
        event("_compile.compile_inner (dynamo_timed)", 70, 20),
        event("aten::ones", 71, 5),
        event("autograd::engine::evaluate_function: CompiledFunctionBackward", 100, 50),
        event("aten::contiguous", 101, 5),
        event("## Call CompiledFxGraph abc ##", 110, 20, scope=7),
        event("aten::mm", 111, 5),
        event("autograd::engine::evaluate_function: MulBackward0", 200, 10),
        event("aten::mul", 201, 5),
    ]
    node = "autograd::engine::evaluate_function: MulBackward0"
    assert oracle.eager_ops(events) == {"aten::add": 1, "aten::contiguous": 1, node: 1}
    # Run op by op there is no compiled node; what is in the graph's region is one op.
    assert oracle.graph_ops(events) == {oracle.IN_GRAPHS: 1, node: 1}


def test_first_times_and_later_ones() -> None:
    node = oracle.NODE + "MulBackward0"
    first, later = {"aten::zeros_like": 2, node: 1}, {node: 1}
    graph = {oracle.IN_GRAPHS: 5, node: 3}
    known = {
        "eager": {"step": [first, later, later, later], "end": [{"aten::sum": 1}]},
        "graphs": {"step": [graph] * 4, "end": [{}]},
    }
    times = {"step": 10, "end": 1}
    eager = {"aten::zeros_like": 2, "MulBackward0": 10, "aten::sum": 1}
    assert oracle.eager_of(known, times) == eager
    assert oracle.captured_of(known, times) == 10 * (5 + 3 - 1)
    assert oracle.eager_of(known, {"step": 1}) == {"aten::zeros_like": 2, "MulBackward0": 1}


def test_a_part_that_changes_has_no_oracle() -> None:
    counts = oracle.PartCounts(oracle.eager_ops)
    same = [(number, Counter({"aten::add": 1})) for number in range(FIRST + 1)]
    counts.counted["step"] = same
    assert counts.of_parts() == {"step": [{"aten::add": 1}] * FIRST}
    counts.counted["step"] = [*same, (7, Counter({"aten::add": 2}))]
    with pytest.raises(oracle.Unsteady, match="step"):
        counts.of_parts()


def test_a_run_counts_its_parts() -> None:
    run = ProgramsRun(few=3)
    for _ in run.times(100):
        with run.part("step"):
            assert run.call(abs, -1) == 1
    assert run.parts == {"step": 3} and set(run.spent_s) == {"first", "call"}
    assert list(ProgramsRun().times(4)) == [0, 1, 2, 3]
    assert len(list(run.stretch(1000))) == 3
