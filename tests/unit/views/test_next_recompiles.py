"""What recompiling and cold caches may win, by hand arithmetic."""

from dataclasses import replace

from next_reports import FILE, S, broken, gap, only, recompiled, report

from instrumented_backend.records import (
    CompiledRecord,
    CompileRecord,
    GuardRecord,
    RecompileRecord,
    notes,
)
from instrumented_backend.views.next_steps import next_steps
from instrumented_backend.views.text import render


def test_recompiling_is_what_the_guards_that_can_be_cured_decided() -> None:
    """Not "changing shapes took 3.76 s", of which 2.26 s were of shapes."""
    made = report()
    made.recompiles = [recompiled(3.76, shape=2.26, training=1.5)]
    step = only(made)
    assert (step.bound_s, step.known) == (2.26, "exact")
    assert step.text == "f recompiled for the shape: cure the shape"
    assert "changing shapes took 2.26 s" in render(made, ("recompiles",), 80)


def test_one_compilation_for_all_sizes_is_left() -> None:
    """6 s for the first one, 5 and 3 s for two more: the shortest one, and it is not known which
    that will be, may take the mean of the two. Of the run's first one most is torch's own
    beginning, which is left."""
    made = report()
    made.recompiles = [recompiled(8.0, shape=8.0)]
    made.recompiles[0].count = 2
    made.compile.compilations = [
        CompileRecord("0/0", "forward", "g", FILE, 9, "compiled", [1], {}, 9.0),
        CompileRecord("0/0", "forward", "f", FILE, 3, "compiled", [0], {}, 6.0),
    ]
    assert only(made).parts_s == {"recompiling": 8.0, "compiling": 2.0}  # 6 - 8 / 2
    made.compile.compilations.reverse()
    assert only(made).parts_s == {"recompiling": 8.0}
    made.recompiles = [recompiled(8.0, int=8.0)]
    assert only(made).parts_s == {"recompiling": 8.0}


def test_looking_up_and_first_calls_may_go_with_recompiling() -> None:
    """Python before its calls, whatever line the gap's eager ops have a step for. Of two graphs
    that were called twice, the first calls took 3 and 5 s more: of one graph, one is left."""
    made = report(python=9.0)
    made.recompiles = [recompiled(8.0, int=8.0)]
    for graph, longest_s in zip(made.graphs, (4.0, 6.0), strict=True):
        graph.function, graph.file, graph.calls = "f", FILE, 2
        graph.longest_call_us, graph.forward_time_us = longest_s * S, (longest_s + 1) * S
    made.ops.gaps = [gap(7.0, 2.0, line=9, to_graph=1)]
    recompiles, eager = next_steps(made)
    assert recompiles.parts_s == {"recompiling": 8.0, "Python": 5.0, "first calls": 5.0}
    assert (eager.code, eager.seen_s) == ("eager", 2.0)


def test_a_value_over_a_graph_break_leads_to_the_break() -> None:
    """Not "pass ___stack2 as a tensor": nobody passes it."""
    made = report()
    name = "torch_dynamo_resume_in_step_at_9"
    guard = GuardRecord("float", "what was computed before it (2)", decided_s=5.0)
    guard.cure = "mend the graph break that the function goes on after: it is from there"
    guard.is_after_break = True
    made.recompiles = [RecompileRecord(*("1/1", name, FILE, 9, None), 1, 5.0, guards=[guard])]
    made.recompiles[0].decided_s = {"float": 5.0}
    made.breaks = [broken(line=9, hint="Do it.")]
    assert only(made).text == (
        "the rest of step from line 9 recompiled for what was computed before it (2): mend the "
        "graph break there: Do it"
    )
    made.breaks = []
    assert only(made).text.endswith(f": {guard.cure}")


def test_where_several_sizes_vary_one_mark_is_not_enough() -> None:
    made = report()
    made.recompiles = [recompiled(5.0, shape=5.0)]
    first = made.recompiles[0].guards[0]
    first.cure = "torch.compile(dynamic=True), or torch._dynamo.maybe_mark_dynamic(x, 0) before"
    first.cure_for_all = "torch.compile(dynamic=True)"
    assert only(made).text.endswith(first.cure)
    made.recompiles[0].guards.append(replace(first, subject="another"))
    assert only(made).text.endswith(": torch.compile(dynamic=True)")


def test_a_module_of_torchs_is_where_it_was_compiled() -> None:
    """Not torch/nn/modules/container.py."""
    made = report()
    record = recompiled(5.0, shape=5.0)
    record.function, record.file, record.compiled = "Sequential", "/torch/container.py", 0
    made.recompiles = [record]
    made.compiled = [
        CompiledRecord(0, "torch.compile(model)", FILE, 3, "Sequential", path="Sequential")
    ]
    made.compiled[0].outcome = "compiled"
    assert only(made).where == f"{FILE}:3"


def test_sizes_that_the_program_itself_keeps_apart() -> None:
    """A loop over them: dynamic=True does not help."""
    made = report()
    made.recompiles = [recompiled(5.0, specialized=5.0)]
    assert only(made).text == "f recompiled for the specialized: cure the specialized"
    made.recompiles[0].decided_s["shape"] = 1.0  # the first time, before it was known
    assert "dynamic=True" not in render(made, ("recompiles",), 80)


def test_what_is_usual_is_not_told_to_be_next() -> None:
    made = report()
    made.recompiles = [recompiled(5.0, training=5.0)]
    made.recompiles[0].guards[0].cure = "one graph for each mode is usual: warm up both"
    made.recompiles[0].guards[0].is_usual = True
    assert "next:" not in render(made, ("recompiles",), 80)


def test_what_several_kinds_decided_together_is_counted_once() -> None:
    made = report()
    made.recompiles = [recompiled(3.0, shape=3.0, int=3.0)]
    assert only(made).bound_s == 3.0


def test_after_the_limit_the_function_runs_eagerly() -> None:
    made = report(python=9.0)
    made.recompiles = [replace(recompiled(2.0, shape=2.0), limit_hits=5)]
    made.breaks = [broken(function="f", code=notes.RECOMPILE_LIMIT, eager_time_us=6 * S)]
    made.ops.gaps = [gap(13.0, 6.0)]
    step = next_steps(made)[0]
    assert (step.code, step.seen_s, step.bound_s) == ("recompile", 8.0, 15.0)


def test_a_warm_start_saves_all_but_what_dynamo_does() -> None:
    made = report()
    made.graphs[1].cache = "miss"
    made.compile.compilations = [
        CompileRecord(*("0/0", "forward", "f", FILE, 1, "compiled", [0], {"codegen_s": 9.0}, 9.0)),
        CompileRecord(
            *("1/0", "forward", "f", FILE, 1, "compiled", [1]),
            {"dynamo_s": 2.0, "codegen_s": 3.0, "kernel_compile_s": 4.0, "load_s": None},
            9.0,
        ),
        CompileRecord("1/0", "backward", "f", FILE, 1, "compiled", [1], {"codegen_s": 1.5}, 1.5),
    ]
    step = only(made)
    assert (step.code, step.bound_s) == ("cold-caches", 8.5)
    # What a recompilation took comes with its cure, which is first.
    made.recompiles = [recompiled(6.0, shape=6.0)]
    first, second = next_steps(made)
    assert (first.code, first.seen_s) == ("recompile", 6.0)
    assert (second.code, second.seen_s, second.bound_s) == ("cold-caches", 2.5, 8.5)
