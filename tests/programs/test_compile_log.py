"""Breaks, skipped functions, compile times and recompiles, from torch's trace log."""

import collections
import itertools
import logging
import re
from typing import Any

import pytest
import torch
from programs import RunProgram

import instrumented_backend
from instrumented_backend.observe.compile import log as compile_log
from instrumented_backend.observe.compile.compiled import CompiledLog
from instrumented_backend.observe.compile.log import CompileLog
from instrumented_backend.observe.failures import Failures


def compile_once(log: CompileLog, compile_id: str, **metrics: Any) -> None:
    """What torch says of one compilation: its marks, and before the last one its metrics."""
    log.timed({"ph": "B", "name": "dynamo", "args": {}})
    record = logging.makeLogRecord(
        {
            "metadata": {
                "compilation_metrics": {
                    "compile_id": compile_id,
                    "co_name": "f",
                    "co_filename": "/me/model.py",
                    "co_firstlineno": 3,
                    "has_guarded_code": True,
                    **metrics,
                }
            }
        }
    )
    log.emit(record)
    log.timed({"ph": "E", "name": "dynamo"})


@pytest.mark.parametrize("limit", [10_000, 100])
def test_all_compilations_count(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """torch keeps the last 64."""
    monkeypatch.setattr(compile_log, "MAX_COMPILATIONS", limit)
    failures = Failures()
    log = CompileLog(failures, lambda graph: None, CompiledLog(failures))
    for n in range(200):
        compile_once(log, f"0/{n}", recompile_reason=f"n == {n}" if n else None)
    assert failures.notes == []
    assert (len(log.compilations), log.dropped) == (min(200, limit), max(0, 200 - limit))
    assert all(record.total_s == sum(record.phases_s.values()) for record in log.compilations)
    totals = log.totals
    assert totals.count == 200
    assert totals.total_s == pytest.approx(totals.phases_s["dynamo_s"])
    assert totals.parts_s["first_s"] + totals.parts_s["later_s"] == pytest.approx(totals.total_s)
    assert totals.parts_s["first_s"] == log.compilations[0].total_s
    (recompiled,) = log.recompiles.records()
    assert (recompiled.count, log.recompiles.count) == (199, 199)
    assert recompiled.compile_s == pytest.approx(totals.parts_s["later_s"])


def test_the_recompile_limit_with_fullgraph() -> None:
    """torch's message says nothing of the limit then, and the program gets an exception."""
    failures = Failures()
    log = CompileLog(failures, lambda graph: None, CompiledLog(failures))
    compile_once(
        log,
        "0/1",
        recompile_reason="n == 3",
        has_guarded_code=False,
        fail_type="FailOnRecompileLimitHit",
        fail_reason="Hard failure due to fullgraph=True",
        fail_user_frame_filename=torch.__file__,
        fail_user_frame_lineno=1,
    )
    assert failures.notes == []
    (recompiled,) = log.recompiles.records()
    assert (recompiled.count, recompiled.limit_hits, log.recompiles.count) == (0, 1, 0)
    (record,) = log.breaks.records([], None)
    assert record.reason == "Dynamo recompile limit exceeded with fullgraph=True"
    # On the function's own line: torch's is nobody's to change.
    assert (record.kind, record.file, record.line) == ("gave up", "/me/model.py", 3)
    assert record.skipped == [] and log.compilations[0].outcome == "failed"


def test_work_at_run_time_is_booked_on_its_graph() -> None:
    seconds = itertools.count()
    failures = Failures()
    log = CompileLog(
        failures, lambda graph: None, CompiledLog(failures), lambda: float(next(seconds))
    )
    compile_once(log, "3/0")
    for _ in range(2):
        arguments = {"compile_id": "3/0", "is_backward": True}
        log.timed({"ph": "B", "name": "CUDAGraphNode.record", "args": arguments})
        log.timed({"ph": "E", "name": "CUDAGraphNode.record"})
    _, at_run_time = log.compilations
    assert (at_run_time.outcome, at_run_time.direction) == ("run time", "backward")
    assert at_run_time.total_s == at_run_time.phases_s["cudagraphs_s"] > 0
    assert log.totals.count == 1
    assert log.totals.parts_s["run_time_s"] == pytest.approx(at_run_time.total_s)


# --- The real thing -----------------------------------------------------------------------------

BROKEN_IN_A_LOOP = """
    import sys, torch
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(10, 8)
            self.blocks = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))
            self.head = torch.nn.Linear(8, 10)
        def block(self, layer, x):
            x = torch.relu(layer(x))
            torch._dynamo.graph_break()  # the break
            return x * 2
        def forward(self, tokens):
            x = self.embedding(tokens)
            for layer in self.blocks:
                x = self.block(layer, x)
            return torch.nn.functional.cross_entropy(self.head(x), tokens)
    compiled = torch.compile(Model(), backend="instrumented")
    for _ in range(4):
        compiled(torch.arange(5)).backward()
"""


@pytest.mark.full
def test_a_break_inside_a_loop(run_forked: RunProgram) -> None:
    done = run_forked(BROKEN_IN_A_LOOP)
    report = done.report
    source = BROKEN_IN_A_LOOP.splitlines()
    broken = next(i for i, line in enumerate(source, 1) if "# the break" in line)
    outer = next(i for i, line in enumerate(source, 1) if "def forward" in line)

    # What was compiled: the block, up to the break and after it; 3 blocks in each of 4 steps.
    functions = [graph["function"] for graph in report["graphs"]]
    assert functions[0] == "block" and functions[1].startswith("torch_dynamo_resume_in_block")
    assert [graph["calls"] for graph in report["graphs"]] == [12, 12]
    assert [graph["backward_calls"] for graph in report["graphs"]] == [12, 12]
    assert report["graphs"][0]["ended_by"].startswith("Call to `torch._dynamo.graph_break()`")
    assert report["graphs"][1]["ended_by"] is None

    # What was not: the function with the loop, for the break that it met.
    (met,) = report["breaks"]
    assert (met["function"], met["line"], met["kind"]) == ("block", broken, "skipped")
    assert met["count"] == 2  # while forward was tried, and while block was compiled
    assert (met["graphs_before"], met["graphs_after"]) == ([0], [1])
    (skipped,) = met["skipped"]
    assert (skipped["function"], skipped["line"]) == ("forward", outer)
    assert "loop" in skipped["reason"]
    assert report["summary"]["graph_breaks"] == 1
    outcomes = {c["function"]: c["outcome"] for c in report["compile"]["compilations"]}
    assert outcomes["forward"] == "skipped" and outcomes["block"] == "compiled"

    assert "instrumented: 2 graphs, 24 calls (+24 backward), 1 graph break" in done.stderr
    assert f"ran eagerly: forward (program0.py:{outer})" in done.stderr
    assert f"graph break at program0.py:{broken} in block" in done.stderr


def test_every_compilation_has_its_time(fresh: None) -> None:
    """As many as torch has written down, and phases that add up to the whole."""
    torch._dynamo.utils.clear_compilation_metrics()
    compiled = torch.compile(lambda x: (x.sin() + 1).sum(), backend="instrumented")
    compiled(torch.randn(8, requires_grad=True)).backward()
    report = instrumented_backend.report()
    forward, backward = report.compile.compilations
    theirs = torch._dynamo.utils.get_compilation_metrics()
    for record, metrics in zip((forward, backward), theirs, strict=True):
        assert metrics.duration_us is not None and record.total_s > 0
        assert sum(s or 0.0 for s in record.phases_s.values()) == pytest.approx(record.total_s)
    assert (forward.direction, backward.direction) == ("forward", "backward")
    compile_s = report.graphs[0].compile_s
    assert compile_s["backward_codegen_s"] is not None
    assert sum(s or 0.0 for s in compile_s.values()) == pytest.approx(report.compile.total_s)
    assert report.compile.forward_s == forward.total_s
    assert report.compile.backward_s == backward.total_s


@pytest.mark.full
def test_nothing_but_our_events_is_rendered(run_forked: RunProgram) -> None:
    """Rendering every event would cost 3 to 10 % of a warm compile."""
    done = run_forked("""
        import logging, torch
        from instrumented_backend import backend
        seen = []
        original = backend._session.compile_log.emit
        backend._session.compile_log.emit = lambda r: (seen.append(r.metadata), original(r))
        f = torch.compile(lambda x: x.sin(), backend="instrumented")
        f(torch.ones(2))
        seen.clear()
        f(torch.ones(3))
        print([m["artifact"]["name"] if "artifact" in m else next(iter(m)) for m in seen])
    """)
    # The marks of time, some forty, are read without being rendered.
    assert done.stdout == "['recompile_reasons', 'compilation_metrics']\n"


def test_what_torch_says_of_triton_kernels(run_forked: RunProgram) -> None:
    """Its own event, as it comes at the end of a compilation on a GPU."""
    done = run_forked("""
        import torch
        torch.compile(lambda x: x.sin(), backend="instrumented")(torch.ones(2))
        from torch._inductor import async_compile
        states = ("hit", "miss", "miss", "only 1 config")
        async_compile._compile_start()
        for number, state in enumerate(states):
            async_compile._add_triton_kernel_info(f"k{number}", {"autotune_cache_state": state})
        async_compile._compile_end()
    """)
    tuning = done.report["caches"]["autotune"]
    assert (tuning["cache_hits"], tuning["cache_misses"]) == (1, 2)
    assert done.report["caches"]["code"]["triton_kernels_compiled"] == 4


@pytest.mark.full
def test_torch_trace_gets_everything(run_program: RunProgram, tmp_path: Any) -> None:
    source = """
        import torch
        def f(x):
            y = x.sin()
            torch._dynamo.graph_break()
            return y + 1
        compiled = torch.compile(f, backend={!r})
        compiled(torch.ones(2))
    """
    kinds = []
    for backend in ("inductor", "inductor", "instrumented"):  # the first one fills the cache
        folder = tmp_path / f"trace{len(kinds)}"
        done = run_program(source.format(backend), env={"TORCH_TRACE": str(folder)})
        (path,) = folder.glob("*.log")
        events = [line for line in path.read_text().splitlines() if line.startswith("V")]
        kinds.append(collections.Counter(re.findall(r"{\"(\w+)\"", "\n".join(events))))
    assert kinds[2] == kinds[1] and len(kinds[1]) > 5
    assert "lost" not in done.report["note_codes"], done.report["notes"]
    assert done.report["summary"]["graph_breaks"] == 1


@pytest.mark.full
@pytest.mark.parametrize(
    "configuration",
    [
        "logging.config.dictConfig({'version': 1})",
        "torch._logging.set_logs(dynamo=logging.ERROR)",
        "logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)",
        "logging.getLogger('torch.__trace').addHandler(logging.NullHandler())",
    ],
    ids=["dictConfig", "set_logs", "basicConfig", "another handler"],
)
def test_the_programs_logging(run_forked: RunProgram, configuration: str) -> None:
    done = run_forked(f"""
        import logging, logging.config, sys, torch
        f = torch.compile(lambda x: x + 1, backend="instrumented")
        {configuration}
        f(torch.ones(2))
        for logger in ("torch.__trace",):
            assert not logging.getLogger(logger).propagate
    """)
    assert len(done.report["compile"]["compilations"]) == 1
    assert done.report["graphs"][0]["function"] == "<lambda>"
    assert "lost" not in done.report["note_codes"], done.report["notes"]
    assert "torch.__trace" not in done.stdout


def test_logging_off_altogether(run_forked: RunProgram) -> None:
    """Some torch versions keep the trace log going; where it is silent, the report says so."""
    report = run_forked("""
        import logging, torch
        f = torch.compile(lambda x: x + 1, backend="instrumented")
        logging.disable(logging.CRITICAL)
        f(torch.ones(2))
    """).report
    assert report["summary"]["graph_calls"] == 1
    silent = any("logging.disable" in note for note in report["notes"])
    assert len(report["compile"]["compilations"]) == (0 if silent else 1)


def test_handlers_are_put_back() -> None:
    from instrumented_backend.torch_compat.trace_log import TRACE_LOGGER, listen

    logger = logging.getLogger(TRACE_LOGGER)
    before = logger.handlers
    count = len(before)
    handler = logging.NullHandler()
    undo = listen(handler, frozenset(), frozenset())
    assert handler in logger.handlers
    undo()
    assert handler not in logger.handlers and len(logger.handlers) == count
    logger.handlers = before
