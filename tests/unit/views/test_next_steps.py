"""Each next step and its bound, by hand arithmetic; and what is not said."""

from dataclasses import replace

import pytest
from next_reports import FILE, S, broken, gap, only, recompiled, report, told

from instrumented_backend.records import (
    GPU_BOUND,
    LAUNCH_BOUND,
    CompiledRecord,
    CompileRecord,
    DeviceRecord,
    GpuRow,
    GpuSection,
    GraphRecord,
    KernelRecord,
    LedgerSection,
    LineRecord,
    MissingRecord,
    SkippedRecord,
    notes,
)
from instrumented_backend.views.next_steps import TRIAL, next_steps
from instrumented_backend.views.text import render

# --- Silence -------------------------------------------------------------------------------------


def test_where_all_is_well_there_is_no_step() -> None:
    made = report(captured=99.0, python=0.9, data=0.05)
    made.ops.gaps = [gap(0.9, 0.0)]
    assert next_steps(made) == []
    assert told(made).startswith("INSTRUMENTED_TABLES=all")
    assert render(made, ("next",), 80) == ""


def test_nothing_is_said_where_the_ledger_is_unknown() -> None:
    made = report(wall_s=0.0)
    made.ledger = LedgerSection(note="no op meter")
    made.run.wall_s = None
    made.recompiles = [recompiled(5.0, shape=5.0)]
    assert next_steps(made) == []


def test_what_takes_less_than_a_hundredth_is_not_said() -> None:
    made = report()
    made.recompiles = [recompiled(0.99, shape=0.99)]
    assert next_steps(made) == []
    made.recompiles = [recompiled(1.0, shape=1.0)]
    assert only(made).bound_pct == 1.0


def test_some_python_and_data_loading_is_in_each_program() -> None:
    made = report(data=4.9, python=4.9)
    made.ops.gaps = [gap(4.9, 0.0)]
    assert next_steps(made) == []
    made.ledger.rows[0].seconds = 5.0
    assert only(made).code == "data"


def test_what_each_call_takes_is_nothing_for_a_python_profiler() -> None:
    """Guards: 50 µs of Python before each of a million calls."""
    made = report(python=60.0)
    made.ops.gaps = [gap(50.0, 0.0, count=1_000_000), gap(10.0, 0.0, count=100)]
    step = only(made)
    assert (step.code, step.seen_s) == ("python", 10.0)


@pytest.mark.parametrize("whose", ["torch", "package"])
def test_a_break_that_is_not_the_users_is_no_step(whose: str) -> None:
    """Not "start with parts.py:13: ... nothing in the program to change"."""
    made = report()
    made.breaks = [broken(whose=whose, eager_time_us=50 * S)]
    assert next_steps(made) == []
    assert "next: start with" not in render(made, ("breaks",), 80)
    made.breaks.append(broken(line=20, hint="Do that."))
    assert "next: start with .../me/train.py:20: Do that." in render(made, ("breaks",), 80)


@pytest.mark.parametrize(
    "kind", ["training", "grad_mode", "dtype", "requires_grad", "none", "device", "rank", "type"]
)
def test_recompilations_that_are_usual_are_no_step(kind: str) -> None:
    made = report()
    made.recompiles = [recompiled(50.0, **{kind: 50.0})]
    assert next_steps(made) == []


# --- Breaks --------------------------------------------------------------------------------------


def test_a_break_costs_the_gap_between_its_graphs_and_may_cost_fusing() -> None:
    # 5 s between the graphs, 3 of them in eager ops. Two graphs of 3 s each; 4 s to compile the
    # second one.
    made = report(python=20.0)
    made.breaks = [broken(graphs_before=[0], graphs_after=[1])]
    made.ops.gaps = [gap(5.0, 3.0, line=9, to_graph=1)]
    made.compile.compilations = [
        CompileRecord("1/0", "forward", "step", FILE, 1, "compiled", [1], {}, 4.0)
    ]
    step = only(made)
    assert (step.code, step.where, step.known) == ("break", f"{FILE}:9", "exact")
    assert step.parts_s == {"eager ops": 3.0, "Python": 2.0, "fusing": 6.0, "compiling": 4.0}
    assert (step.seen_s, step.bound_s, step.bound_pct) == (5.0, 15.0, 15.0)
    assert told(made) == (
        ".../me/train.py:9: graph break in step: Do it: at most 15.0 s (15.0 % of the run)"
    )


def test_what_a_break_may_cost_alone_is_for_a_trial() -> None:
    """Two graphs that may be fused: nothing that was seen is the break's."""
    made = report()
    made.breaks = [broken(graphs_before=[0], graphs_after=[1])]
    step = only(made)
    assert (step.known, step.seen_s, step.bound_s) == (TRIAL, 0.0, 6.0)
    assert told(made).startswith("INSTRUMENTED_TABLES=summary,breaks")
    assert "only a trial tells" in render(made, ("next",), 80)


def test_a_function_that_ran_eagerly_may_have_all_of_python() -> None:
    made = report(python=30.0)
    made.breaks = [broken(eager_time_us=10 * S, skipped=[SkippedRecord("step", FILE, 5)])]
    made.ops.gaps = [gap(25.0, 10.0, line=7), gap(15.0, 0.0, backward=True)]
    # Its eager ops are not told a second time; what was seen of Python elsewhere is more.
    python, step = next_steps(made)
    assert (python.code, python.seen_s) == ("python", 15.0)
    assert step.parts_s == {"eager ops": 10.0, "Python": 30.0}  # 15 + 15
    assert (step.code, step.seen_s) == ("break", 10.0)


# --- The rest of the loop ------------------------------------------------------------------------


def test_the_optimizer_takes_what_its_step_takes() -> None:
    made = report(python=10.0)
    made.ops.gaps = [
        gap(20.0, 14.0, line=31, event="Optimizer.step#AdamW.step", inside=True, backward=True),
        gap(7.0, 0.0, event="Optimizer.step#AdamW.step", backward=True),  # after it
    ]
    first, second = next_steps(made)
    assert (first.code, first.bound_s, first.seen_s) == ("optimizer", 20.0, 20.0)
    assert first.parts_s == {"eager ops": 14.0, "Python": 6.0}
    assert first.where == f"{FILE}:31" and "AdamW(..., fused=True)" in first.text
    assert (second.code, second.bound_s) == ("python", 7.0)


def test_a_fused_optimizer_is_no_step() -> None:
    made = report()
    of = {"event": "Optimizer.step#AdamW.step", "inside": True}
    made.ops.gaps = [gap(20.0, 20.0, 31, "aten::_fused_adamw_", **of)]
    assert next_steps(made) == []
    # Of small parameters, counting the steps takes longer than the fused kernel.
    made.ops.gaps = [gap(20.0, 20.0, 31, "aten::_foreach_add_", **of)]
    assert only(made).code == "optimizer"
    made.ops.missing = [MissingRecord("aten::_fused_adamw_", FILE, 31, "step", 300, 5 * S, 20.0)]
    assert next_steps(made) == []


def test_an_optimizer_that_cannot_be_fused_is_compiled() -> None:
    made = report()
    made.ops.gaps = [gap(20.0, 20.0, 31, event="Optimizer.step#RMSprop.step", inside=True)]
    assert "fused" not in only(made).text and "torch.compile(optimizer.step)" in only(made).text


def test_a_loss_between_forward_and_backward() -> None:
    made = report()
    made.ops.gaps = [gap(8.0, 6.0, line=30, op="aten::nll_loss", to_graph=0, to_backward=True)]
    step = only(made)
    # 6 s of ops, 2 s of Python, and the graph's 3 s, with which it may be fused.
    assert (step.code, step.seen_s, step.bound_s) == ("loss", 6.0, 11.0)
    assert "aten::nll_loss" in step.text and step.where == f"{FILE}:30"


def test_what_autograd_does_is_on_no_line_to_compile() -> None:
    """Gradients are added up where ``loss.backward()`` stands, which is no part of the loss."""
    made = report()
    accumulate = "torch::autograd::AccumulateGrad"
    made.ops.gaps = [
        gap(8.0, 6.0, line=30, op="aten::nll_loss", to_graph=0, to_backward=True),
        gap(9.0, 9.0, line=30, op=accumulate, backward=True),
    ]
    step = only(made)
    assert (step.code, step.seen_s) == ("loss", 6.0) and accumulate not in step.text
    made.ops.gaps[1].lines[0].op = "aten::mul_"  # an update of averages, after the backward
    assert [step.code for step in next_steps(made)] == ["eager", "loss"]


def test_eager_ops_by_line_and_none_of_what_runs_once() -> None:
    made = report(python=50.0)
    made.ops.gaps = [
        gap(4.0, 3.0, line=12, backward=True),
        gap(2.0, 2.0, line=12),
        gap(30.0, 30.0, line=3, graph=None, count=1),  # before the loop
    ]
    step = only(made)
    assert (step.code, step.where) == ("eager", f"{FILE}:12")
    assert (step.seen_s, step.bound_s) == (5.0, 6.0)


def test_data_and_python_are_no_compilers() -> None:
    made = report(data=40.0, python=25.0)
    made.ops.gaps = [gap(25.0, 0.0), gap(40.0, 0.0, in_data=True)]
    data, python = next_steps(made)
    assert (data.code, data.bound_s) == ("data", 40.0)
    assert (python.code, python.bound_s) == ("python", 25.0)
    assert told(made).endswith("INSTRUMENTED_TABLES=next has 1 more")


def test_nothing_compiled_may_win_all_that_ran() -> None:
    made = report(eager_ops=60.0, python=20.0)
    made.graphs = []
    made.compiled = [
        CompiledRecord(
            *(0, "torch.compile(model)", FILE, 3, "Model"),
            outcome="ran eagerly",
            reason="it does",
            reason_code=notes.TORCHS_WRAPPER,
        )
    ]
    step = only(made)
    assert (step.code, step.seen_s, step.bound_s) == ("not-compiled", 60.0, 80.0)
    # Among graphs, what of it is this one's is not known.
    made.graphs = [GraphRecord(graph=0, calls=1)]
    assert (only(made).known, only(made).seen_s, only(made).bound_s) == (TRIAL, 0.0, 80.0)


# --- GPUs, kernels, trials -----------------------------------------------------------------------


def test_a_device_that_waits_for_launches() -> None:
    made = report(captured=40.0, eager_ops=10.0, python=10.0)
    made.ops.device = DeviceRecord(
        "sampled", 2, 5.0, window_us=1000.0, busy_us=800.0, kernel_us=800.0, captured_us=700.0,
        pct_captured=87.5, kernels=[], note=None,
    )  # fmt: skip
    # Idle for a fifth of 60 s; less than the 40 s in regions.
    assert (only(made).code, only(made).bound_s) == ("launch-bound", pytest.approx(12.0))
    made.compile.cudagraphs.recorded = 1
    assert next_steps(made) == []
    made.compile.cudagraphs.recorded = 0
    made.ops.device.status = "unknown"
    assert next_steps(made) == []


def gpu(verdict: str | None, idle_s: float = 0.0) -> GpuRow:
    return GpuRow(
        0, "a GPU", 60.0, 20.0, idle_s, *(60.0, 20.0, idle_s, 0.0), 70.0, verdict, 5.0, "x"
    )


def test_on_a_gpu_that_is_behind_its_own_time_counts() -> None:
    """An optimizer that the host launches in 4 s and the GPU runs in 12 s; the host waits for it
    somewhere, which is no Python that a profiler could find."""
    made = report(python=30.0, data=20.0)
    made.ops.gaps = [
        gap(5.0, 4.0, line=31, event="Optimizer.step#AdamW.step", inside=True, backward=True),
        gap(25.0, 0.0),
    ]
    made.lines = [LineRecord(FILE, 31, eager_time_us=4 * S, eager_gpu_us=12 * S)]
    made.gpu = GpuSection(90.0, [gpu(LAUNCH_BOUND)])
    told = {step.code: step.bound_s for step in next_steps(made)}
    assert told == {"optimizer": 5.0, "python": 25.0, "data": 20.0}
    made.gpu = GpuSection(90.0, [gpu(GPU_BOUND, idle_s=6.0)])
    told = {step.code: step.bound_s for step in next_steps(made)}
    assert told == {"optimizer": 12.0, "python": 6.0, "data": 6.0}
    made.gpu = GpuSection(90.0, [gpu(GPU_BOUND)])
    assert only(made).code == "optimizer"


def test_products_of_float32_on_a_gpu_are_for_a_trial() -> None:
    made = report(captured=80.0)
    product = KernelRecord("extern_kernels.mm", "extern", 0, arg_dtypes={"arg0": "float32"})
    made.kernels = [product, replace(product, graph=1, arg_dtypes={"arg0": "bfloat16"})]
    made.graphs[0].config = {"max_autotune": "True"}
    made.run.device, made.run.float32_matmul_precision = "a GPU", "highest"
    step = only(made)
    assert (step.code, step.known, step.bound_s) == ("tf32", TRIAL, 3.0)
    assert 'set_float32_matmul_precision("high")' in step.text
    made.kernels.pop()
    made.graphs[0].config = {}
    assert [step.code for step in next_steps(made)] == ["tf32", "max-autotune"]  # of the same time
    made.graphs[0].config = {"max_autotune": "True"}
    made.run.float32_matmul_precision = "high"
    assert next_steps(made) == []
    made.run.float32_matmul_precision = None
    assert next_steps(made) == []


def test_a_kernel_far_from_the_peak_is_for_a_trial() -> None:
    made = report()
    slow = KernelRecord("k", "triton", 0, device_time_total_us=10 * S, peak_pct=20.0)
    made.kernels = [
        slow,
        replace(slow, kernel_name="near", peak_pct=60.0),
        replace(slow, kernel_name="computes", flops=900, total_bytes=100),
        replace(slow, kernel_name="unknown", device_time_total_us=None),
    ]
    step = only(made)
    assert (step.code, step.known, step.bound_s) == ("kernel", TRIAL, 8.0)
    assert step.text.startswith("k reaches 20.0 %")


def test_trials_come_last_and_not_into_the_summary() -> None:
    made = report(captured=80.0, data=12.0)
    made.kernels = [KernelRecord("extern_kernels.mm", "extern", 0)]
    assert [step.code for step in next_steps(made)] == ["data", "max-autotune"]
    assert next_steps(made)[1].bound_s == 3.0
    made.ledger.rows[1].seconds = 0.0
    assert told(made).startswith("INSTRUMENTED_TABLES=")
    made.graphs[0].config = {"max_autotune": "True"}
    assert next_steps(made) == []


def test_a_small_graph_repeats_no_block() -> None:
    made = report()
    made.compile = replace(made.compile, first_s=50.0)
    assert next_steps(made) == []
    made.graphs[0].ops = 100
    assert only(made).code == "regional"
