"""A failure of our own costs an observation, never the program."""

import math

import pytest
from programs import RunProgram
from speeds import full_but

from instrumented_backend.observe.failures import MAX_NOTES, Failures
from instrumented_backend.records.notes import LOST

PROGRAM = """
    import sys, torch
    from instrumented_backend.torch_compat import dynamo, fx, inductor, inductor_metrics, trace_log
    from instrumented_backend.observe import exit
    from instrumented_backend.observe.code import codegen
    from instrumented_backend.observe.ops import captured
    from instrumented_backend.observe.graphs import counters
    from instrumented_backend.observe.compile import log as compile_log
    from instrumented_backend.observe.ops import meter as ops
    from instrumented_backend.observe.ops import lines
    from instrumented_backend.observe.native import build as native
    from instrumented_backend.observe.graphs import graph as graphs
    from instrumented_backend.observe.code import generated
    from instrumented_backend.observe.code import metric_tables
    from instrumented_backend.observe import session
    from instrumented_backend.observe.compile import compiled, phases
    from instrumented_backend.observe import job
    from instrumented_backend.observe.ops import op_counter
    def fail(*args, **kwargs):
        raise RuntimeError("injected")
    {inject}
    x = torch.ones(4, requires_grad=True)
    f = torch.compile(lambda x: x.sin().sum(), backend="instrumented")
    for _ in range(3):
        f(x).mul(1).backward()
    print(x.grad.sum().item())
    sys.exit(4)
"""

COLD = "import torch._inductor.config; torch._inductor.config.force_disable_caches = True"
INJECTIONS = {
    "trace log": "trace_log.listen = fail",
    "compile times": "phases.PhaseClock.mark = fail",
    "compile log": "compile_log.CompileLog._compilation = fail",
    # A backward is compiled lazily only where no cache holds it.
    "lazy backward": f"compile_log.CompileLog._lazy_backward = fail; {COLD}",
    "opening a graph": "compile_log.CompileLog.graph_opened = fail",
    "graph": "graphs.count_ops = fail",
    "devices": "fx.device_kind = fail",
    "counters": "dynamo.counters = fail",
    "metrics": "inductor_metrics.values = fail",
    "post_compile": "inductor.patch_post_compile = fail",
    "backward region": "inductor.is_backward_code = fail",
    "generated code": "generated.kernel_names = fail",
    "kernels": "generated.parse_module = fail",
    "code path": "inductor.code_path = fail",
    "forward region": "graphs.ObservedGraph.forward = fail",
    "exit": "exit.ExitHooks.install = fail",
    "op meter": "ops.OpMeter._end_warm_up = fail",
    "captured ops": "captured.describe = fail",
    "source lines": "from instrumented_backend.observe import snapshot; snapshot.add_lines = fail",
    "counting ops": "op_counter.OpCounter.count_all = fail",
    "native part": "native.load = fail",
    "graph calls": "native.load_graph_call = fail",
    "lines": "lines.Lines._line = fail",
    "metric tables": "metric_tables.MetricTables.code_loaded = fail",
    "metric tables while compiling": f"metric_tables.MetricTables.compilation_ends = fail; {COLD}",
    "kernels' origins": f"codegen.CodegenFacts.defined = fail; {COLD}",
    "session": "session.Session.open_graph = fail",
    "report": "session.assemble = fail",
    "torch.compile": "compiled._target = fail",
    "calls of torch.compile": "compiled.CompiledLog.all = fail",
    "what became of torch.compile": "session.compiled_records = fail",
    "the job": "job.Job.look = fail",
    "views": "import instrumented_backend.backend as b; b.deliver = fail",
}


@pytest.mark.parametrize(
    "observer",
    full_but(INJECTIONS, "compile log", "op meter"),
)
def test_a_failure_in_each_observer(run_forked: RunProgram, observer: str) -> None:
    done = run_forked(PROGRAM.format(inject=INJECTIONS[observer]), check=False)
    assert done.returncode == 4
    # The gradient of sin at 1, four elements, three steps.
    assert float(done.stdout) == pytest.approx(3 * 4 * math.cos(1))
    assert "Traceback" not in done.stderr
    assert done.stderr.count("injected") >= 1
    said = [line for line in done.stderr.splitlines() if "WARNING: lost: " in line]
    assert len(said) == len(set(said)) >= 1
    if observer not in ("exit", "session", "report", "views"):
        assert done.report["summary"]["graphs"] == 1
        assert any("injected" in note for note in done.report["notes"])
    if observer not in ("exit", "session", "report", "views", "forward region"):
        assert done.report["summary"]["graph_calls"] == 3


@pytest.mark.full
def test_a_failure_after_stderr_was_closed(run_forked: RunProgram) -> None:
    """Logging itself would raise here, into the program."""
    inject = "graphs.count_ops = fail; sys.stderr.close()"
    done = run_forked(PROGRAM.format(inject=inject), check=False)
    assert done.returncode == 4
    assert any("injected" in note for note in done.report["notes"])


def test_notes_are_said_once_and_bounded(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures()
    for i in range(3 * MAX_NOTES):
        with failures.guard("observer"):
            raise ValueError(i % (2 * MAX_NOTES))
    assert len(failures.notes) == MAX_NOTES
    assert failures.notes[0].text.startswith("lost: observer: ValueError: 0 (test_failures.py:")
    assert len(caplog.records) == MAX_NOTES


def test_a_note_is_one_line() -> None:
    failures = Failures()
    with failures.guard("observer"):
        raise RuntimeError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation'")
    (note,) = failures.notes
    assert note.code == LOST and note.text.startswith(
        "lost: observer: RuntimeError: CUDA error: out of memory (test_fail"
    )


def test_the_programs_own_exceptions_are_not_ours() -> None:
    failures = Failures()
    with pytest.raises(KeyboardInterrupt), failures.guard("observer"):
        raise KeyboardInterrupt
    assert failures.notes == []
