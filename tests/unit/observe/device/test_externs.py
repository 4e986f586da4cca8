"""What ops launched, joined to the extern calls of the code; computed by hand."""

import pytest

from instrumented_backend.kernels.wrapper import op_of
from instrumented_backend.observe.device.externs import add_extern_times
from instrumented_backend.observe.native.keys import region_key
from instrumented_backend.records import GraphRecord, KernelRecord, notes
from instrumented_backend.traces.op_totals import OpTotal, RegionOps

FORWARD = region_key(0, False)
GRAPHS: dict[int | None, GraphRecord] = {0: GraphRecord(graph=0, calls=100, backward_calls=50)}
MM, ADDMM, SDPA = "extern_kernels.mm", "extern_kernels.bias_addmm", "torch.ops.aten._sdpa.default"


def extern(
    name: str, *positions: int, calls: int | None = None, total_bytes: int = 0
) -> KernelRecord:
    record = KernelRecord(name, "extern", 0, "forward", calls=calls or len(positions))
    record.extern_positions = list(positions)
    record.total_bytes = total_bytes or None
    return record


def regions(count: int, *ops: tuple[str, dict[str, float]]) -> RegionOps:
    """``count`` regions of these ops, with the µs of their kernels."""
    found = RegionOps()
    for _ in range(count):
        found.add_region(
            tuple(name for name, _ in ops),
            [
                OpTotal(
                    1,
                    round(1e3 * sum(kernels.values())),
                    {name: round(1e3 * us) for name, us in kernels.items()},
                )
                for _, kernels in ops
            ],
        )
    return found


@pytest.mark.parametrize(
    ("kernel", "op"),
    [
        (MM, "aten::mm"),
        (ADDMM, "aten::addmm"),
        ("aten.sort.default", "aten::sort"),
        ("torch.ops.mylib.op.default", "mylib::op"),
        ("inductor_ops.resize_storage_bytes_", "inductor::resize_storage_bytes_"),
        ("_quantized.wrapped_linear.default", "_quantized::wrapped_linear"),
    ],
)
def test_ops_of_extern_calls(kernel: str, op: str) -> None:
    assert op_of(kernel) == op


def test_the_nth_call_is_the_nth_op() -> None:
    first, second = extern(MM, 0, 3, total_bytes=6_000_000), extern(MM, 2)
    addmm = extern(ADDMM, 1)
    found = regions(
        5,
        ("aten::mm", {"gemm_a": 2.0}),
        ("aten::select", {}),  # `bias_addmm` takes a row
        ("aten::addmm", {"gemm_b": 3.0, "reduce": 1.0}),
        ("aten::mm", {"gemm_c": 7.0}),
        ("aten::mm", {"gemm_a": 4.0}),
    )
    found.add(regions(1, ("aten::mm", {"gemm_a": 1000.0})))  # another course: left out
    add_extern_times([first, second, addmm], {FORWARD: found}, GRAPHS)
    # 5 times 2 and 4 µs; two calls in each of the run's 100; 6 MB in 3 µs.
    assert (first.device_time_us, first.device_calls, first.device_time_total_us) == (3, 200, 600)
    assert (first.gb_per_s, first.library_kernels) == (2000, {"gemm_a": 3})
    assert first.notes == ["time: the mean of 10 calls, in windows"]
    assert (second.device_time_us, second.library_kernels) == (7, {"gemm_c": 7})
    assert (addmm.device_time_us, addmm.device_calls) == (4, 100)
    assert list(addmm.library_kernels.items()) == [("gemm_b", 3), ("reduce", 1)]


def test_another_order_than_the_codes() -> None:
    first, second, attention = extern(MM, 0), extern(MM, 2), extern(SDPA, 1)
    course = [("aten::mm", {"a": 1.0}), ("aten::mm", {"b": 3.0}), ("aten::_sdpa", {"flash": 9.0})]
    add_extern_times([first, second, attention], {FORWARD: regions(2, *course)}, GRAPHS)
    for record in (first, second):
        assert record.device_time_us == 2 and record.library_kernels == {"b": 1.5, "a": 0.5}
        assert record.notes[0].startswith("time: the mean of all 4 calls of aten::mm in this graph")
    # There is one of them only, wherever it stands.
    assert (attention.device_time_us, attention.notes) == (
        9,
        ["time: the mean of 2 calls, in windows"],
    )


def test_a_code_whose_order_is_not_known() -> None:
    first, second = extern(MM, calls=1), extern(MM, calls=1)
    found = regions(1, ("aten::mm", {"a": 1.0}), ("aten::mm", {"a": 3.0}))
    add_extern_times([first, second], {FORWARD: found}, GRAPHS)
    assert (first.device_time_us, second.device_time_us) == (2, 2)
    assert "another order" in first.notes[0]


def unknown(found: RegionOps) -> str:
    record = extern(MM, 0)
    add_extern_times([record], {FORWARD: found}, GRAPHS)
    assert record.device_time_us is None and record.note_codes == [notes.TIME_UNKNOWN]
    return record.notes[0]


def test_what_cannot_be_known_says_why() -> None:
    assert unknown(RegionOps(courses={(): []}, graph_launches=3)) == (
        "time unknown: a CUDA graph launched its kernels, all of the graph's at once"
    )
    sort = ("aten::sort", {"sort": 1.0})
    assert unknown(regions(1, sort)) == "time unknown: the windows saw no aten::mm in this graph"
    assert unknown(regions(1, sort, ("aten::mm", {}))) == (
        "time unknown: aten::mm launched no kernel in the windows"
    )


def test_graphs_that_no_window_saw_or_that_run_elsewhere() -> None:
    record, generated = extern(MM, 0), KernelRecord("triton_a", "triton", 0, "forward")
    add_extern_times([record, generated], {}, GRAPHS)
    add_extern_times([record], {FORWARD: regions(1, ("aten::mm", {}))}, GRAPHS)  # on a CPU
    assert (record.device_time_us, record.notes, generated.notes) == (None, [], [])
