"""What ops in regions launched: by hand-made traces, and by a recorded one and plain loops."""

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from traces import GEMM, Event, annotation, kernel, launch, op, write

from instrumented_backend.traces.op_totals import (
    MAX_COURSES,
    OpTotal,
    RegionOps,
    together,
)
from instrumented_backend.traces.region_ops import is_op, ops_in_regions
from instrumented_backend.traces.trace_file import read_trace

RECORDED = Path(__file__).parents[2] / "data" / "h100_inductor_step.json.gz"
SPLIT = "cublasLt::splitKreduce_kernel"
MARK = "## Call CompiledFxGraph fabc ##"


@pytest.fixture
def seen(tmp_path: Path) -> Any:
    def seen(calls: list[tuple[int, int]], *events: Event) -> dict[int, RegionOps]:
        path = write(tmp_path / "t.json", list(events))
        return ops_in_regions(read_trace(path, wanted=is_op), calls)

    return seen


def test_ops_and_torchs_marks() -> None:
    assert is_op("aten::mm") and is_op("mylib::op") and is_op("_c10d_functional::all_reduce")
    for name in ("triton_poi_fused_add_0", "CompiledFunction", MARK, "Torch-Compiled Region: 0/0"):
        assert not is_op(name)
    assert not is_op("autograd::engine::evaluate_function: MmBackward0")
    assert not is_op("torch::autograd::AccumulateGrad")


def test_kernels_go_to_the_outermost_op_of_their_region(seen: Any) -> None:
    found = seen(
        [(1, 7)],
        annotation(0, 100, "TORCHDYNAMO"),
        op(5, 30, "aten::linear"),
        op(10, 20, "aten::addmm"),  # inside it
        launch(12, 1, 1),
        launch(14, 1, 2),
        op(40, 5, "triton_poi_fused_add_0"),
        launch(41, 1, 3),
        op(50, 10, "aten::mm"),
        launch(51, 1, 4),
        op(70, 5, "aten::empty"),
        op(120, 10, "aten::mm"),  # after the region
        launch(121, 1, 5),
        kernel(20, 6, GEMM, correlation=1),
        kernel(30, 2, SPLIT, correlation=2),
        kernel(45, 3, correlation=3),
        kernel(60, 9, GEMM, correlation=4),
        kernel(130, 50, GEMM, correlation=5),
    )
    linear = OpTotal(1, 8_000, {GEMM: 6_000, SPLIT: 2_000})
    mm = OpTotal(1, 9_000, {GEMM: 9_000})
    assert found == {
        7: RegionOps(
            {"aten::linear": linear, "aten::mm": mm, "aten::empty": OpTotal(1)},
            {("aten::linear", "aten::mm", "aten::empty"): [linear, mm, OpTotal(1)]},
        )
    }


def test_regions_have_their_keys_by_thread_and_order(seen: Any) -> None:
    events = []
    for start, tid, name in ((0, 1, "aten::mm"), (20, 2, "aten::bmm"), (40, 1, "aten::mm")):
        events += [
            annotation(start, 10, "TORCHDYNAMO", tid=tid),
            op(start + 1, 5, name, tid=tid),
            launch(start + 2, 1, start + 1, tid=tid),
            kernel(start + 5, start + 1, GEMM, correlation=start + 1),
        ]
    found = seen([(1, 1), (2, 2), (1, 3)], *events)
    assert {key: ops.by_name for key, ops in found.items()} == {
        1: {"aten::mm": OpTotal(1, 1_000, {GEMM: 1_000})},
        2: {"aten::bmm": OpTotal(1, 21_000, {GEMM: 21_000})},
        3: {"aten::mm": OpTotal(1, 41_000, {GEMM: 41_000})},
    }
    # One region too many on thread 1: whose is whose cannot be told.
    assert list(seen([(1, 1), (2, 2)], *events)) == [2]


def test_only_the_generated_codes_own_ops(seen: Any) -> None:
    """AOTAutograd copies changed inputs back after the call; a region without the mark has all."""
    found = seen(
        [(1, 1), (1, 2)],
        annotation(0, 50, "TORCHDYNAMO"),
        annotation(10, 20, MARK),
        op(12, 5, "aten::mm"),
        op(40, 5, "aten::copy_"),
        annotation(60, 20, "TORCHDYNAMO_BACKWARD"),
        op(65, 5, "aten::copy_"),
    )
    assert [list(found[key].by_name) for key in (1, 2)] == [["aten::mm"], ["aten::copy_"]]


def test_launches_of_cuda_graphs(seen: Any) -> None:
    found = seen(
        [(1, 1)],
        annotation(0, 50, "TORCHDYNAMO"),
        launch(10, 1, 9),
        *(kernel(20 + 5 * i, 5, GEMM, correlation=9) for i in range(3)),
    )
    assert found == {1: RegionOps(courses={(): []}, graph_launches=1)}


def test_no_regions(seen: Any) -> None:
    assert seen([], op(0, 5)) == {}
    assert seen([(1, 1)], op(0, 5)) == {}


def test_windows_add_up() -> None:
    first, second = RegionOps(), RegionOps()
    first.add_region(("aten::mm",), [OpTotal(1, 5, {"a": 5})])
    second.add_region(("aten::mm",), [OpTotal(1, 7, {"b": 7})])
    second.graph_launches = 2
    both = OpTotal(2, 12, {"a": 5, "b": 7})
    sums = together({1: first}, {1: second, 2: second})
    assert sums[1] == RegionOps({"aten::mm": both}, {("aten::mm",): [both]}, 2)
    assert sums[2] == second and sums[2] is not second
    assert first.by_name["aten::mm"].calls == 1, "who reads the old sums still has them"


def test_courses_are_bounded() -> None:
    ops = RegionOps()
    for count in range(MAX_COURSES + 3):
        ops.add_region(("aten::mm",) * count, [OpTotal(1, 1)] * count)
    assert len(ops.courses) == MAX_COURSES
    assert ops.by_name["aten::mm"].calls == sum(range(MAX_COURSES + 3))


def test_a_recorded_trace(tmp_path: Path) -> None:
    """Inductor's own marks taken for regions, each graph's key for ours; summed by plain loops."""
    with gzip.open(RECORDED, "rt") as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]
    marks = [e for e in events if e["name"].startswith("## Call")]
    names = list(dict.fromkeys(mark["name"] for mark in marks))
    marks.sort(key=lambda mark: float(mark["ts"]))
    calls = [(int(mark["tid"]), names.index(mark["name"])) for mark in marks]
    regions = [{**mark, "cat": "user_annotation", "name": "TORCHDYNAMO"} for mark in marks]
    path = write(tmp_path / "t.json", [*events, *regions])
    found = ops_in_regions(read_trace(path, wanted=is_op), calls)

    def encloses(outer: Event, inner: Event) -> bool:
        same = outer["tid"] == inner["tid"] and outer["ts"] <= inner["ts"]
        return same and bool(inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"])

    launched = {e["args"]["correlation"]: e for e in events if e["cat"].startswith("cuda_")}
    expected: dict[int, Counter[str]] = defaultdict(Counter)
    ops = [e for e in events if e["cat"] == "cpu_op" and e["name"].startswith("aten::")]
    for each in (e for e in events if e["cat"] == "kernel"):
        call = launched[each["args"]["correlation"]]
        mark = next((m for m in marks if encloses(m, call)), None)
        above = [e for e in ops if encloses(e, call)] if mark else []
        if mark is not None and above:
            outer = max(above, key=lambda e: float(e["dur"]))
            expected[names.index(mark["name"])][outer["name"]] += round(each["dur"] * 1e3)
    assert {
        key: {name: total.time_ns for name, total in ops.by_name.items() if total.time_ns}
        for key, ops in found.items()
    } == expected
    assert expected[0] and all(len(ops.courses) == 1 for ops in found.values())
