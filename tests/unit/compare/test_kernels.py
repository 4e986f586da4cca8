"""Kernels of two reports: which are the same, and which line is to blame for the others."""

import gzip
from pathlib import Path

from made_reports import FILE, graph, kernel, report
from paths import DATA

from instrumented_backend.compare.compare import compare
from instrumented_backend.compare.difference import Change
from instrumented_backend.records import Report, notes, read_report


def first(before: Report, after: Report) -> Change:
    return compare(before, after).changes[0]


def test_a_kernel_by_another_number_or_with_other_views_is_the_same() -> None:
    before = report(graph(), kernel(0, "add", "mul", "view"), kernel(0, "sum"))
    after = report(
        graph(), kernel(0, "sum", name="cpp_sum_1"), kernel(0, "mul", "add", "permute", name="k_7")
    )
    assert compare(before, after).changes == []


def test_a_fusion_that_was_prevented_by_a_new_op() -> None:
    before = report(graph(), kernel(0, "add", "mul", "sin", lines=(11, 12, 13)))
    after = report(
        graph(),
        kernel(0, "add", lines=(11,)),
        kernel(0, name="torch.ops.mine.opaque", language="extern", lines=(12,)),
        kernel(0, "mul", "sin", lines=(13, 14)),
    )
    change = first(before, after)
    assert (change.what, change.before, change.after, change.line) == ("more", 1, 3, 12)
    assert change.cause == "new: torch.ops.mine.opaque"


def test_a_fusion_that_was_prevented_by_ops_that_were_there() -> None:
    before = report(graph(), kernel(0, "add", "mul", lines=(11, 12)))
    after = report(graph(), kernel(0, "add", lines=(11,)), kernel(0, "mul", lines=(13,)))
    # Line 11 had a kernel before; 13 had none.
    assert first(before, after).before == 1
    assert {first(before, after).line} <= {11, 13}


def test_the_line_of_a_new_op_in_a_kernel_that_has_several() -> None:
    """Lines and ops are lists of their own: add stands on two lines, and sin on the third."""
    lines = {"aten.add": [f"{FILE}:11", f"{FILE}:12"], "aten.sin": [f"{FILE}:13"]}
    before = report(graph(), kernel(0, "add", lines=(11, 12)))
    one = kernel(0, "add", "sin", lines=(11, 12, 13), op_lines=lines)
    after = report(graph(), one, kernel(0, "add", "sin", lines=(11,), direction="backward"))
    assert first(before, after).line == 13


def test_a_kernel_of_which_only_the_name_is_known_is_the_same() -> None:
    """Plain Inductor filled the caches: what a C++ kernel was fused from stands nowhere."""
    before = report(graph(), kernel(0, "add", "mul", "view", name="cpp_fused_add_mul_view_0"))
    after = report(graph(), kernel(0, name="cpp_fused_add_mul_view_3"))
    assert compare(before, after).changes == compare(after, before).changes == []


def test_another_torch_writes_down_other_origins_of_a_kernel() -> None:
    """2.11 says of a backward that it is from tanh, too; 2.14 does not."""
    one = report(graph(), kernel(0, "add", "mul", "tanh_backward", "tanh"), torch="2.11.0")
    other = report(graph(), kernel(0, "add", "mul", "tanh_backward"), torch="2.14.1")
    assert compare(one, other).changes == []
    larger = kernel(0, "add", "mul", "tanh_backward", total_bytes=80)
    (change,) = compare(one, report(graph(), larger, torch="2.14.1")).changes
    assert change.kind == "kernel" and change.worse
    same = report(graph(), kernel(0, "add", "mul", "tanh_backward"), torch="2.11.0")
    assert len(compare(one, same).changes) == 1


def test_gpt2_on_the_oldest_torch_and_on_the_newest(tmp_path: Path) -> None:
    """Both graphs and all 38 kernels are found again, though torch names origins otherwise.

    What really differs: five kernels reuse a buffer in place, and read its 32 floats, too.
    """
    reports = []
    for version in ("2.11", "2.15"):
        path = tmp_path / f"{version}.json"
        data = (DATA / "versions" / f"gpt2-torch-{version}.json.gz").read_bytes()
        path.write_bytes(gzip.decompress(data))
        reports.append(read_report(path))
    found = compare(*reports)
    pairs = [(pair.before_id, pair.after_id) for pair in found.graphs]
    assert pairs == [("1/0", "1/0"), ("3/0", "3/0")]
    assert found.changes == []
    changed = {figure.figure: figure for figure in found.figures if figure.changed}
    assert list(changed) == ["kernel_bytes"]
    assert changed["kernel_bytes"].after - changed["kernel_bytes"].before == 5 * 32 * 4
    assert ("torch", "2.11.0+cu130", "2.15.0+cu132") in [
        (each.what, each.before, each.after) for each in found.surroundings
    ]


def test_code_that_was_not_read_for_want_of_time() -> None:
    """Of a long run's end: its kernels are there by name, and its calls are not."""
    said = {"notes": ["by name only"], "note_codes": [notes.NOT_PARSED]}
    by_name = {**said, "total_bytes": None}
    before = report(graph(), kernel(0, name="cpp_fused_add_mul_0", **by_name))
    called = kernel(0, name="extern_kernels.mm", language="extern", lines=(12,))
    after = report(graph(), kernel(0, "add", "mul", name="cpp_fused_add_mul_0"), called)
    for one, other in ((before, after), (after, before)):
        found = compare(one, other)
        assert found.changes == []
        assert [each.what for each in found.surroundings] == ["kernels known"]


def test_a_forward_is_to_blame_for_its_backward() -> None:
    called = {"language": "extern"}
    known = kernel(0, name="extern_kernels.addmm", lines=(15,), **called)
    after = report(
        *(graph(), known),
        kernel(0, name="extern_kernels.addmm", direction="backward", lines=(15,), **called),
        kernel(0, name="extern_kernels.mm", lines=(32,), **called),
    )
    assert first(report(graph(), known), after).line == 32


def test_larger_inputs() -> None:
    before = report(graph(), kernel(0, "add", lines=(11,)), kernel(0, "sin", lines=(12,)))
    after = report(
        graph(),
        kernel(0, "add", lines=(11,), total_bytes=65),  # 1.6 %: within what is estimated
        kernel(0, "sin", lines=(12,), total_bytes=640),
    )
    (change,) = compare(before, after).changes
    assert (change.what, change.before, change.after, change.line) == ("more", 64, 640, 12)
    assert change.worse and compare(after, before).changes == []


def test_kernels_that_move_to_the_rest_of_a_function_are_matched() -> None:
    before = report(graph(), kernel(0, "add"), kernel(0, "mul"))
    rest = graph(1, "torch_dynamo_resume_in_f_at_14", 14)
    after = report(graph(), rest, kernel(0, "add"), kernel(1, "mul"))
    assert [change.kind for change in compare(before, after).changes] == ["graph"]
