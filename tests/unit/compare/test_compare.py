"""What is new, gone and changed between two reports; each of them is put together by hand."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from made_reports import FILE, eager, graph, graph_break, kernel, recompile, report, skipped

from instrumented_backend.compare.compare import compare
from instrumented_backend.compare.difference import Change, Comparison
from instrumented_backend.compare.matching import match_graphs
from instrumented_backend.records import CompiledRecord, Report
from instrumented_backend.views import diff


def first(before: Report, after: Report) -> Change:
    return compare(before, after).changes[0]


def test_the_same_run_again() -> None:
    one = report(graph(), kernel(0, "add", lines=(11,)), graph_break(), recompile(), eager())
    other = report(graph(), kernel(0, "add", lines=(11,)), graph_break(), recompile(), eager())
    found = compare(one, other)
    assert found.changes == [] and found.surroundings == []
    assert [figure.figure for figure in found.figures if figure.changed] == []
    assert diff.verdict(found) == "no change but in times"


def test_lines_that_moved_are_no_change() -> None:
    """As after an import was added at the top; the time of compiling is another, too."""
    one = report(
        *(graph(), kernel(0, "add", lines=(11,)), graph_break(14), recompile(line=10)),
        *(skipped(line=20), eager(line=30), eager("aten::sum", line=31)),
        compile_s=1.0,
    )
    other = report(
        *(graph(line=17), kernel(0, "add", lines=(18,)), graph_break(21), recompile(line=17)),
        *(skipped(line=27), eager(line=37), eager("aten::sum", line=38)),
        compile_s=30.0,
    )
    assert compare(one, other).changes == []


def test_another_torch_says_it_in_other_words() -> None:
    one = report(graph_break(reason="call_function print"), torch="2.11.0")
    found = compare(one, report(graph_break(reason="Failed to trace builtin: print")))
    assert found.changes == []
    assert [(each.what, each.before, each.after) for each in found.surroundings] == [
        ("torch", "2.11.0", "2.15.0")
    ]


def test_a_file_with_another_name_is_no_change() -> None:
    one = report(graph(), graph_break(), skipped(), recompile(), eager(function="main"))
    other = report(graph(), graph_break(), skipped(), recompile(), eager(function="main"))
    for record in (*other.graphs, *other.breaks, *other.recompiles, *other.ops.missing):
        record.file = "/home/me/renamed.py"
    other.breaks[1].skipped[0].file = "/home/me/renamed.py"
    assert compare(one, other).changes == []


def test_a_function_with_another_name_runs_the_same_ops() -> None:
    one, other = report(eager(function="main")), report(eager(function="train"))
    assert compare(one, other).changes == []
    # What a line of another function of the file runs is not taken for it unless it is the same.
    assert len(compare(one, report(eager("aten::x", function="train"))).changes) == 2


def test_a_run_with_more_steps_is_no_change() -> None:
    one = report(graph(calls=6), eager(count=36), eager("aten::sum", line=31, count=2))
    other = report(graph(calls=60), eager(count=360), eager("aten::sum", line=31, count=2))
    found = compare(one, other)
    assert [each.what for each in found.surroundings] == ["graph calls"]
    assert found.changes == []  # two ops before the loop are two ops still
    worse = report(graph(calls=60), eager(count=3600), eager("aten::sum", line=31, count=20))
    assert [(each.what, each.line) for each in compare(one, worse).changes] == [("more", 30)]


def test_what_is_compiled_apart_follows_from_the_function_that_is_not() -> None:
    """Of a model whose forward runs eagerly, the blocks are compiled, and recompiled."""
    block = recompile("block", 14, compile_s=7.0)
    (*_, last) = changes = compare(report(graph()), report(graph(), skipped("f"), block)).changes
    assert [change.kind for change in changes] == ["skipped", "break"] and last.kind == "break"
    assert changes[0].follows == ["new: block recompiled"]
    # Where it was compiled before, it is a change of its own.
    apart = graph(1, "block", 14)
    found = compare(report(graph(), apart), report(graph(), apart, skipped("f"), block))
    assert [change.kind for change in found.changes] == ["recompile", "break", "skipped"]


def test_a_break_comes_before_what_follows_from_it() -> None:
    """The rest of the function is another graph, is recompiled, and runs eager ops."""
    before = report(graph(ops=8), kernel(0, "add", "mul", lines=(11, 15)))
    after = report(
        graph(ops=3),
        graph(1, "torch_dynamo_resume_in_f_at_14", 14, 5),
        kernel(0, "add", lines=(11,)),
        kernel(1, "mul", lines=(16,)),
        graph_break(14),
        recompile("torch_dynamo_resume_in_f_at_14", 14, compile_s=7.0),
        eager(line=14, function="f"),
    )
    (change,) = compare(before, after).changes
    assert (change.kind, change.what, change.line) == ("break", "new", 14)
    # 20 µs of its own, 7 s and 50 µs of what came with it.
    assert change.cost_s == pytest.approx(7.00007)
    assert "new: f recompiled" in change.follows
    assert "kernels of f: 1 → 2" in change.follows
    assert change.cure == "Avoid calling it."


def test_the_costliest_of_several_comes_first() -> None:
    breaks = [graph_break(14, eager_time_us=20.0), graph_break(40, "g", eager_time_us=9e6)]
    found = compare(report(), report(*breaks, recompile("h", 50, compile_s=2.0)))
    assert [change.line for change in found.changes] == [40, 50, 14]


def test_two_breaks_of_the_same_kind_in_a_function() -> None:
    """One more of them is found; which of the two is the new one is not known."""
    found = compare(report(graph_break(14)), report(graph_break(15), graph_break(18)))
    (change,) = found.changes
    assert change.what == "new" and change.line in (15, 18)


def test_what_got_better_comes_last() -> None:
    found = compare(report(graph_break()), report(recompile()))
    assert [(change.what, change.worse) for change in found.changes] == [
        ("new", True),
        ("gone", False),
    ]


def test_recompiled_more_often() -> None:
    change = first(report(recompile(count=1)), report(recompile(count=4)))
    assert (change.what, change.before, change.after) == ("more", 1, 4)
    assert change.cause == "size of x in dimension 0: 8 → 9"


def test_a_compile_that_runs_eagerly() -> None:
    calm = CompiledRecord(0, "torch.compile(f)", "/home/me/model.py", 3, "f")
    eagerly = CompiledRecord(
        0, "torch.compile(f)", "/home/me/model.py", 3, "f", outcome="ran eagerly", reason="why"
    )
    change = first(report(calm), report(eagerly))
    assert (change.kind, change.line, change.cause) == ("uncompiled", 3, "why")


# --- Eager ops ----------------------------------------------------------------------------------


def test_an_optimizer_that_is_no_longer_compiled() -> None:
    before = report(graph(), eager("aten::randn", 28, "main"), captured=600)
    after = report(
        graph(),
        eager("aten::randn", 28, "main"),
        *(eager(op, 31, "main", 140) for op in ("aten::add_", "aten::sqrt", "aten::mul_")),
    )
    change = first(before, after)
    assert (change.kind, change.what, change.line, change.after) == ("eager", "new", 31, 420)
    assert change.details[0] == "aten::add_ × 140"


def test_sampled_ops_within_their_spread_are_no_change() -> None:
    before = report(graph(), eager(count=40), status="sampled", spread=5.0)
    after = report(graph(), eager(count=44), eager("aten::x", 90, count=1), captured=60)
    assert compare(before, after).changes == []
    # 60 of 100 and of 105 ops: 2.9 points, which 5 do not tell apart.
    by_name = {figure.figure: figure for figure in compare(before, after).figures}
    assert by_name["captured_ops_pct"].changed is False
    before.ops.status = "exact"
    assert [change.kind for change in compare(before, after).changes] == ["eager", "eager"]


# --- Caches -------------------------------------------------------------------------------------


def test_a_cold_and_a_warm_run_differ_in_their_caches_alone() -> None:
    found = compare(report(graph(), warm=True), report(graph()))
    assert found.changes == []
    assert [each.what for each in found.surroundings] == ["caches"]


def test_a_key_that_moves() -> None:
    """Both runs come after others on the same cache; one graph of the second is not in it."""
    before = report(graph(0, cache="hit"), graph(1, "g", 40, cache="miss"))
    other = graph(0, cache="miss", cache_reason="new key: differs in the global STEP")
    change = first(before, report(other, graph(1, "g", 40, cache="hit")))
    assert (change.kind, change.what, change.cause) == (
        "cache miss",
        "new",
        "new key: differs in the global STEP",
    )


def test_a_graph_that_can_no_longer_be_cached() -> None:
    reason = "a custom op without a key"
    after = report(graph(cache="bypass", cache_reason=reason))
    assert first(report(graph(), warm=True), after).cause == reason


# --- Graphs -------------------------------------------------------------------------------------


def matched(before: Report, after: Report) -> list[tuple[int | None, int | None]]:
    return [(pair.before.graph, pair.after.graph) for pair in match_graphs(before, after).pairs]


def test_many_graphs_of_one_function_are_matched_one_to_one() -> None:
    before = report(*(graph(i, "forward", ops=6) for i in range(12)))
    after = report(*(graph(i, "forward", ops=6, line=12) for i in range(12)))
    assert matched(before, after) == [(i, i) for i in range(12)]


def test_a_function_that_is_compiled_anew_without_a_guard_that_failed() -> None:
    """``torch.compiler.reset()`` in a loop; the kernels of the new graphs come with them."""
    before = report(graph(line=28), kernel(0, "add", lines=(30,)))
    graphs = [graph(number, line=28, compile_id="0/0") for number in range(3)]
    kernels = [kernel(number, "add", lines=(30,)) for number in range(3)]
    (change,) = compare(before, report(*graphs, *kernels)).changes
    assert (change.kind, change.what, change.before, change.after) == ("graph", "more", 1, 3)
    assert change.worse and change.line == 28
    assert change.follows == ["kernels of f: 1 → 3"]


def test_a_module_of_torchs_own_stands_where_it_was_compiled() -> None:
    call = CompiledRecord(1, "torch.compile(net)", FILE, 42, "Sequential", path="Sequential")
    new = graph(1, "forward", 254, compiled=1)
    new.file = "/venv/lib/python3.11/site-packages/torch/nn/modules/container.py"
    after = report(graph(), new, call, kernel(1, name="extern_kernels.addmm", language="extern"))
    (change,) = compare(report(graph()), after).changes
    assert (change.kind, change.what, change.file, change.line) == ("graph", "new", FILE, 42)
    assert change.worse is None  # more of the program may be compiled now


def test_graphs_of_a_function_are_matched_by_what_is_in_them() -> None:
    before = report(
        graph(0, "forward", ops=6), graph(1, "forward", ops=9), kernel(0, "add"), kernel(1, "sum")
    )
    after = report(
        graph(0, "forward", ops=10), graph(1, "forward", ops=6), kernel(0, "sum"), kernel(1, "add")
    )
    assert matched(before, after) == [(1, 0), (0, 1)]


def test_a_function_with_a_new_name_is_matched_by_its_structure() -> None:
    before = report(graph(0, "old", ops=7), kernel(0, "add", "mul"))
    after = report(graph(0, "new", ops=7), kernel(0, "add", "mul"))
    (pair,) = match_graphs(before, after).pairs
    assert pair.by == "structure"


def test_the_rest_of_a_function_is_not_taken_for_its_beginning() -> None:
    before = report(graph(0, ops=8))
    after = report(graph(0, "torch_dynamo_resume_in_f_at_14", 14, 4), graph(1, ops=4))
    assert matched(before, after) == [(0, 1)]


# --- What is drawn ------------------------------------------------------------------------------


def with_everything() -> Comparison:
    before = report(
        graph(), kernel(0, "add"), graph_break(90, "old", source="log(x)"), torch="2.11.0"
    )
    after = report(
        graph(ops=9), kernel(0, "add"), kernel(0, "sin"), graph_break(), recompile(count=3), eager()
    )
    return compare(before, after, ("a.json", "b.json"))


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_text_fits_and_says_the_first_thing_first(width: int) -> None:
    text = diff.as_text(with_everything(), width)
    assert max(map(len, text.splitlines())) <= width
    words = " ".join(text.split())
    assert "differs: torch: 2.11.0 → 2.15.0" in words
    assert words.index("differs: torch") < words.index("3 changes for the worse; first: new: f")
    assert "why: size of x in dimension 0: 8 → 9" in words
    assert "gone: graph break in old" in words


def test_markdown_and_html_say_what_others_wrote_and_do_not_run_it() -> None:
    evil = "<script>alert(1)</script> | `x`"
    found = compare(report(), report(graph_break(source=evil, reason=evil)))
    assert "<script" not in diff.as_html([found])
    assert "&lt;script&gt;" in diff.as_html([found])
    assert "<script" not in diff.as_markdown(found).replace("\\<", "")


def test_json_has_all_of_it() -> None:
    found = with_everything()
    assert msgspec.convert(json.loads(msgspec.json.encode(found)), Comparison) == found


def run_diff(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "instrumented_backend", "diff", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def saved(folder: Path, *reports: Report) -> Path:
    folder.mkdir()
    for number, one in enumerate(reports):
        name = f"report.rank{one.run.rank}.pid{number}.json"
        (folder / name).write_text(one.to_json())
    return folder


def test_the_command_compares_rank_with_rank(tmp_path: Path) -> None:
    one = saved(tmp_path / "a", report(), report(rank=1))
    other = saved(tmp_path / "b", report(), report(graph_break(), rank=1), report(rank=2))
    done = run_diff(one, other, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert [len(each["changes"]) for each in json.loads(done.stdout)] == [0, 1]
    assert done.stderr == f"only in {other}: rank 2\n"
    page = run_diff(one, other, "--format", "html").stdout
    assert page.count("<section>") == page.count("</section>") == 2
    calm, worse = page.split("</section>")[:2]
    assert "no change but in times" in calm and "rank 0: train.py" in calm
    assert "new: graph break in f" in worse and "rank 1: train.py" in worse


def test_two_reports_of_one_rank_are_refused(tmp_path: Path) -> None:
    one = saved(tmp_path / "a", report(), report())
    done = run_diff(one, one)
    assert done.returncode == 2
    assert done.stderr == (
        f"instrumented-backend: {one}: two reports of rank 0, report.rank0.pid0.json and "
        "report.rank0.pid1.json: name one of them, or give each run a folder of its own\n"
    )
