"""What the benchmarks of overhead and accuracy compute from their measurements."""

import itertools
import json
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import in_child
import pytest
from click.testing import CliRunner
from paths import SUPPORT
from proof import (
    bench_gpu,
    child,
    device_time,
    figures,
    memory,
    modes,
    parts,
    snapshots,
    utilization,
    window,
)
from proof.figures import Cost, Figure, cost_of, exit_code, nearest
from proof.kernel_bytes import bytes_rows
from proof.kernel_time import time_rows

from instrumented_backend.records import KernelRecord
from instrumented_backend.records.bench import BenchRecord, BenchRun, GraphBench, Timing


def test_median_and_quartiles_lie_among_the_values() -> None:
    # Of 1, 2, 3, 4, 10: the quartiles are the second and the fourth.
    assert cost_of("x", [10, 1, 3, 2, 4], "x", 3) == Cost("x", 3, 2, 4, 5, "x", 3)
    # Of two, a quarter of the way from each: 1 + (2 - 1) / 4.
    assert cost_of("x", [2, 1], "x", None) == Cost("x", 1.5, 1.25, 1.75, 2, "x", None)
    assert cost_of("x", [2], "x", None) == Cost("x", 2, 2, 2, 1, "x", None)


def test_a_cost_and_its_limit() -> None:
    assert cost_of("x", [1.01, 1.01], "x", 1.01).ok
    over = cost_of("x", [1.02, 1.02], "x", 1.01)
    assert not over.ok and over.cells[-2:] == ["1.01", "OVER"]
    assert cost_of("x", [9.0], "x", None).ok and cost_of("x", [9.0], "x", None).cells[-1] == "-"


def test_error_of_a_figure() -> None:
    def figure(ours: float | None, oracle: float, limit: float, **more: Any) -> Figure:
        return Figure("m", "f", "cold", ours, oracle, limit, **more)

    assert figure(102, 100, 2).error == pytest.approx(2) and figure(102, 100, 2.1).ok
    assert figure(97, 100, 2).error == pytest.approx(3) and not figure(97, 100, 2).ok
    assert figure(51, 50, 1, in_points=True).error == 1
    assert figure(0, 0, 0).ok and figure(1, 0, 5).error == float("inf")
    unknown = figure(None, 5, 100)
    assert unknown.error is None and not unknown.ok and unknown.cells[-1] == "OFF"


def test_the_oracle_of_a_range_is_its_nearest_point() -> None:
    assert [nearest(value, 90, 105) for value in (80, 90, 97, 105, 120)] == [90, 90, 97, 105, 105]
    assert [nearest(value, 2) for value in (1, 2, 1e9)] == [2, 2, 1e9]


def test_what_was_measured_before_ctrl_c_is_kept() -> None:
    row = cost_of("a", [1.0], "x", 2)

    def rows() -> Iterator[Cost]:
        yield row
        raise KeyboardInterrupt

    assert figures.measured(rows()) == ([row], True)
    assert figures.measured(iter([row, row])) == ([row, row], False)


def test_exit_code_and_json(tmp_path: Path) -> None:
    good, bad = cost_of("a", [1.0], "x", 2), cost_of("b", [3.0], "x", 2)
    assert [exit_code(rows) for rows in ([good], [good, bad], [])] == [0, 1, 1]
    assert exit_code([good], interrupted=True) == 130
    figures.write_json(tmp_path / "rows.json", [good, bad])
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["what"], row["median"], row["limit"], row["ok"]) for row in rows] == [
        ("a", 1.0, 2, True),
        ("b", 3.0, 2, False),
    ]
    assert "OVER" in figures.table([good, bad], figures.COST_HEADERS)


def test_commands_fail_where_a_limit_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    import accuracy
    import overhead

    monkeypatch.setattr(os, "environ", {**os.environ})  # both commands add to it
    for median, code in ((0.3, 0), (0.5, 1)):
        rows = [cost_of("call", [median], "us over", 0.4)]
        monkeypatch.setattr(overhead, "tiny_call", lambda *_, rows=rows: rows)
        assert CliRunner().invoke(overhead.main, ["--only", "call"]).exit_code == code
    for ours, code in ((50.5, 0), (52, 1)):
        rows = [Figure("gpt2", "ops, %", "warm", ours, 50, 1, in_points=True)]
        monkeypatch.setattr(modes, "auto_against_always", lambda _, rows=rows: rows)
        assert CliRunner().invoke(accuracy.main, ["--only", "modes"]).exit_code == code
    wrong = CliRunner().invoke(accuracy.main, ["--only", "device"])
    assert wrong.exit_code == 2 and "device is not for cpu" in wrong.output


# --- Child processes ----------------------------------------------------------------------------


def test_a_function_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    assert child.call(in_child.settings_and_sum, [1, 2], INSTRUMENTED_OPS="off") == {
        "sum": 3,
        "mode": "off",
    }
    assert [Cost(**row) for row in child.call(in_child.a_row)] == in_child.a_row()
    with pytest.raises(click.ClickException, match=r"in_child.fails: .* ended with code 3"):
        child.call(in_child.fails)


# --- Memory -------------------------------------------------------------------------------------


def test_growth_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[mmap.mmap] = []

    def keep(count: int) -> None:
        # A mapping of its own: malloc might have room left from tests before.
        kept.append(mmap.mmap(-1, 1000 * count))
        kept[-1].write(b"x" * (1000 * count))

    monkeypatch.setitem(memory._PROGRAMS, "eager ops", lambda backend: keep)
    # 50,000 of 1,000 bytes each.
    found = memory.growth("eager ops", "inductor", 50_000)
    assert found == pytest.approx(50e6, abs=5e6)


def test_rows_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(function: Any, what: str, backend: str, count: int, **variables: str) -> int:
        if backend == "inductor":
            return 100_000_000
        each = 40_000 if what.startswith("recompiles") else 0
        snapshots = 1_000_000 if "INSTRUMENTED_DIR" in variables else 0
        return 102_000_000 + each * count + snapshots

    monkeypatch.setattr(child, "call", call)
    rows = {row.what: row for row in memory.memory(pairs=2)}
    ops = rows["memory, 10,000,000 eager ops, always"]
    assert (ops.median, ops.unit, ops.limit, ops.ok) == (2, "MB over", 5, True)
    # 2 MB / 1,000 graphs and 40 KB each.
    graph = rows["memory, 1,000 recompiles, code of their own, auto"]
    assert (graph.median, graph.unit, graph.limit, graph.ok) == (42, "KB a graph over", 30, False)
    with_snapshots = rows["memory, 1,000,000 graph calls, auto with snapshots"]
    assert with_snapshots.median == 3
    assert len(rows) == 3 + 3 + 2 + 2


# --- Bytes --------------------------------------------------------------------------------------


def test_bytes_beside_inductors() -> None:
    kernels = [
        KernelRecord("a", "cpp", total_bytes=105),
        KernelRecord("b", "cpp", total_bytes=7),  # of one graph
        KernelRecord("b", "cpp", total_bytes=9),  # of another
        KernelRecord("c", "cpp"),
        KernelRecord("e", "cpp", total_bytes=106),
        KernelRecord("extern_kernels.mm", "extern", total_bytes=1000),
    ]
    inductors = {"a": [100], "b": [9, 7], "c": [5], "d": [4], "e": [100]}
    total, same = bytes_rows("m", "cold", kernels, inductors)
    # 105 + 7 + 9 + 106 and 100 + 9 + 7 + 5 + 4 + 100; a and b agree within 5 %.
    assert (total.ours, total.oracle) == (227, 225)
    assert (same.ours, same.oracle) == (2, 5) and not same.ok


def test_a_kernels_least_time() -> None:
    # a: 10 against 9; b: 90 against 91; together 100 against 100.
    times = {"a": [(10.0, 20.0), (30.0, 9.0)], "b": [(90.0, 99.0), (95.0, 91.0)]}
    total, longest = time_rows("m", times)
    assert (total.ours, total.oracle) == (100, 100)
    assert (longest.figure, longest.ours, longest.oracle) == ("time of b, us", 90, 91)


# --- Modes --------------------------------------------------------------------------------------


def test_the_worst_share_of_each_list_is_shown() -> None:
    auto = {
        "ops, %": 40.0,
        "op time, %": 60.5,
        "eager aten::add, %": 70.0,
        "eager aten::mul, %": 30.0,
    }
    always = {
        "ops, %": 40.0,
        "op time, %": 60.0,
        "eager aten::add, %": 68.5,
        "eager aten::mul, %": 29.0,
        "eager aten::sub, %": 2.5,
    }
    rows = modes.compare(auto, always)
    assert [(row.figure, row.error, row.ok) for row in rows] == [
        ("ops, %", 0, True),
        ("op time, %", 0.5, True),
        ("eager aten::sub, %", 2.5, False),
    ]
    assert modes._medians([{"a": 1.0}, {"a": 5.0, "b": 3.0}, {"a": 2.0}]) == {"a": 2.0, "b": 0.0}
    assert modes.compare({**auto, "op time, %": None}, always)[1].ok is False


# --- Device time --------------------------------------------------------------------------------


def function_event(name: str, device: int, start: float, end: float, **more: Any) -> Any:
    fields = {
        "name": name,
        "device_type": device,
        "device_index": 0,
        "time_range": SimpleNamespace(start=start, end=end),
        "is_user_annotation": False,
        "kernels": [],
        "cpu_parent": None,
        "cpu_children": [],
        "input_shapes": [],
    }
    return SimpleNamespace(**{**fields, **more})


def ran(name: str, duration: float) -> Any:
    """A kernel of a FunctionEvent's."""
    return SimpleNamespace(name=name, duration=duration)


def test_share_by_the_profilers_tree() -> None:
    region = function_event("TORCHDYNAMO", 0, 0, 50)
    events = [
        region,
        function_event("call", 0, 1, 9, cpu_parent=region, kernels=[ran("triton_a", 30)]),
        function_event("aten::copy_", 0, 9, 9, cpu_parent=region, kernels=[ran("Memcpy", 8)]),
        function_event("aten::add", 0, 60, 70, kernels=[ran("add", 10)]),
        function_event("triton_a", 1, 100, 130),
        function_event("Memcpy", 1, 125, 133),
        function_event("add", 1, 140, 150),
        function_event("TORCHDYNAMO", 1, 90, 150, is_user_annotation=True),
    ]
    # 30 of 30 + 10 µs of kernels; busy from 100 to 133 and from 140 to 150.
    assert device_time.figures_of(events, cpu=0) == {
        "pct": 75,
        "kernels": {"triton_a": [1, 30], "add": [1, 10]},
        "externs": [],
        "busy_us": 43,
    }


def test_extern_calls_by_the_profilers_tree() -> None:
    region = function_event("TORCHDYNAMO", 0, 0, 50)
    code = function_event("## Call CompiledFxGraph f ##", 0, 0, 50, cpu_parent=region)
    shapes = [[2, 3], [3, 4], []]
    inner = function_event("aten::addmm", 0, 2, 8, kernels=[ran("gemm", 5), ran("Memset", 1)])
    outer = function_event("aten::linear", 0, 1, 9, cpu_parent=code, input_shapes=shapes)
    inner.cpu_parent, outer.cpu_children = outer, [inner]
    again = function_event("aten::linear", 0, 1, 9, cpu_parent=code, input_shapes=shapes)
    again.kernels = [ran("gemm", 7)]
    before = function_event("aten::copy_", 0, 1, 9, cpu_parent=region, kernels=[ran("copy", 3)])
    fused = function_event("triton_a", 0, 1, 9, cpu_parent=code, kernels=[ran("triton_a", 30)])
    device = function_event("triton_a", 1, 100, 130)
    events = [region, code, outer, inner, again, before, fused, device]
    found = device_time.figures_of(events, cpu=0)["externs"]
    assert found == [("aten::linear", [[2, 3], [3, 4]], 2, 12)]


def test_extern_calls_at_our_means() -> None:
    theirs: device_time.Externs = [
        ("aten::mm", [[2, 3], [3, 4], [2, 4]], 20, 100.0),
        ("aten::mm", [[8, 8], [8, 8]], 20, 300.0),
        ("aten::view", [[2, 3]], 20, 0.0),
    ]
    ours: device_time.Externs = [
        ("aten::mm", [[2, 3], [3, 4]], 100, 450.0),  # 4.5 for 5 µs
        ("aten::mm", [[8, 8], [8, 8]], 100, 1500.0),
    ]
    every, worst = device_time.extern_rows("net", ours, theirs)
    assert (every.figure, every.ours, every.oracle, every.ok) == (
        "time of aten::mm, us a call",
        9.75,
        10,
        True,
    )
    assert (worst.ours, worst.oracle, worst.ok) == (4.5, 5, False)
    unknown: device_time.Externs = [("aten::mm", [[2, 3], [3, 4]], 100, None)]
    assert not any(row.ok for row in device_time.extern_rows("net", unknown, theirs))
    assert not any(row.ok for row in device_time.extern_rows("net", [], theirs))


def test_triton_kernels_at_our_means() -> None:
    profile = {"triton_a": [40.0, 400.0], "triton_b": [20.0, 100.0], "gemm": [20.0, 900.0]}
    # In 20 steps 2 launches a step of 11 µs, and one of 5: 27 against (400 + 100) / 20.
    row = device_time.triton_row("net", {"triton_a": 11.0, "triton_b": 5.0}, profile)
    assert (row.ours, row.oracle) == (27, 25) and not row.ok
    assert device_time.triton_row("net", {"triton_a": 11.0}, profile).ours is None


def test_utilization_of_a_recorded_trace() -> None:
    rows = utilization.recorded()
    assert len(rows) == 8 and all(row.ok for row in rows), [row.cells for row in rows]


# --- Bench on a GPU -----------------------------------------------------------------------------


def benched(name: str, ms: float, cold_ms: float | None = None) -> BenchRecord:
    cold = None if cold_ms is None else Timing(cold_ms, cold_ms, cold_ms, cold_ms, 9)
    return BenchRecord(KernelRecord(name, "triton"), Timing(ms, ms, ms, ms, 9), cold=cold)


def test_kernels_as_in_the_run() -> None:
    kernels = [
        benched("far", 0.012),  # 0.01 in the run: by a fifth
        benched("near", 1.02),
        benched("twice", 9.0),
        benched("twice", 9.0),
        benched("short", 0.0009),
    ]
    graphs = [GraphBench("forward", kernels_ms=1.2), GraphBench("backward", kernels_ms=2.0)]
    times = {"far": [0.01], "near": [1.0, 1.0, 9.0], "twice": [1.0], "short": [0.0005]}
    run = BenchRun(kernels, graphs)
    total, worst = bench_gpu.as_in_the_run("m", run, {"times": times, "sum_ms": 3.0})
    assert (total.ours, total.oracle, total.ok) == (3.2, 3.0, True)
    assert (worst.figure, worst.ours, worst.ok) == ("bench: far as in the run, ms", 0.012, False)
    graphs[0].kernels_ms = None  # one was not timed
    assert bench_gpu.as_in_the_run("m", run, {"times": times, "sum_ms": 3.0})[0].ours is None


def test_all_that_a_call_launched() -> None:
    inner = function_event("aten::mm", 0, 1, 2, kernels=[ran("gemm", 5), ran("Memset", 1)])
    kernels = [ran("triton_a", 2)]
    outer = function_event("call", 0, 0, 9, kernels=kernels, cpu_children=[inner])
    assert bench_gpu.launched_us(outer) == 8


def test_each_launch_beside_those_by_hand() -> None:
    kernels = [benched("k", 9, 2.1), benched("k", 9, 1.0), benched("short", 9, 0.011)]
    first = {"k": [[2.0, 2.0], [1.0, 1.0]], "short": [[0.01, 0.02]]}
    second = {"k": [[1.0, 1.0], [2.0, 2.0]], "short": [[0.015]]}
    worst, missed = bench_gpu.as_by_hand(kernels, {"k": [1.0]}, first, second)
    # In the order of their times: 1 ms for 1, 2.1 for 2; a short one may lie anywhere in the range.
    assert (worst.figure, worst.ours, worst.oracle) == ("bench: k by hand, ms", 2.1, 2.0)
    assert missed.ok
    assert not bench_gpu.as_by_hand(kernels, {"gone": [1.0]}, first, second)[1].ok


def test_share_of_the_time_that_a_gpu_was_busy() -> None:
    report = "x\nPercent of time when CUDA is busy: 97.31%\nTotal wall time 1.000 ms"
    assert bench_gpu._busy_pct(report) == 97.31 and bench_gpu._busy_pct("") is None


# --- What a window leaves behind ----------------------------------------------------------------


def test_steps_beside_a_snapshot() -> None:
    lasted_s = [1.0] * 30
    lasted_s[10] = 1.5  # one that a snapshot ran beside
    lasted_s[11:15] = [1.25] * 4  # a machine that is slow for a while
    ends_s = [0.0, *itertools.accumulate(lasted_s)]
    taken = [snapshots.Taken(at_s, at_s + 0.25, 0.25) for at_s in (0.5, 10.75, 10.875, 21.0)]
    pairs = list(snapshots.pairs_of(taken, ends_s))
    # Each with the step after it; the second is followed too soon to compare it.
    assert pairs == [
        snapshots.Pair(2.0, 2.0, 10.25),
        snapshots.Pair(2.75, (2.5 + 2.25 + 2.0) / 3, 10.125),
    ]
    assert snapshots.ratio_of(pairs) == 1 + (2.75 - 2.25) / (10.25 + 10.125)


def test_steps_after_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(function: Any, opens: bool, pairs: int, **variables: str) -> list[float]:
        assert function is window.after_over_before
        return [1.0 + 0.1 * opens - 0.05 * len(variables)] * pairs

    monkeypatch.setattr(child, "call", call)
    without, after, torn_down = window.after_a_window(3)
    assert (without.median, after.median, torn_down.median) == pytest.approx((1, 1.1, 1.05))
    assert (without.pairs, without.limit, without.unit) == (3, None, "x")
    assert torn_down.what.endswith("TEARDOWN_CUPTI=1")


# --- Parts --------------------------------------------------------------------------------------


def test_rows_of_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("counted_call", "timed_call", "called_function", "note", "lines_of_a_graph")
    others = ("line_of_an_op", "seeing_an_op", "seeing_an_op_error", "parsing", "reading")
    for name in (*names, *others):
        monkeypatch.setattr(parts, name, lambda: 0.25)
    rows = parts.parts(pairs=3)
    assert [(row.median, row.pairs, row.ok) for row in rows] == [(0.25, 3, True)] * 10
