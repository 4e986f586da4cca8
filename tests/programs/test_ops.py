"""The op meter in whole programs: known ops, known lines."""

import os
import shutil
import textwrap
from typing import Any

import pytest
from programs import RunProgram, ops_of

# Four ops between the graphs: two of one kind on lines of their own, and a composite, which is one.
KNOWN = """
    import sys, torch
    import torch.nn.functional as F
    import instrumented_backend
    @torch.compile(backend="instrumented")
    def first(x): return x.sin() * 2
    @torch.compile(backend="instrumented")
    def second(x): return x.cos() + 1
    def step(x):
        y = first(x)
        y = y.add(1)  # line 11
        y = F.layer_norm(y, (64,))  # line 12
        y = y.mul(2).add(3)  # line 13
        return second(y)
    x = torch.randn(64)
    for _ in range(STEPS):
        step(x)
"""
LINES = {("aten::add", 11), ("aten::layer_norm", 12), ("aten::mul", 13), ("aten::add", 13)}
RANDN = {("aten::randn", 15): 1}  # before the first call, and after `torch.compile`


# A short run, too, is left to windows that chance places once its loop has come round.
SHORT_WARM_UP = """
    from instrumented_backend.observe.ops import meter as ops
    ops.ALWAYS_AFFORDABLE_S = 0.0
"""


def known(steps: int, before: str = "") -> str:
    """The program, with its native part there before its first step, and what comes ``before``."""
    start = "    x = torch.randn(64)\n"
    before += "\n    from instrumented_backend import backend\n"
    before += "    backend._session.ops._loader.join()\n"
    return KNOWN.replace("STEPS", str(steps)).replace(start, start + before)


@pytest.mark.parametrize("steps", [pytest.param(5, marks=pytest.mark.full), 1000])
def test_always_is_exact(run_forked: RunProgram, steps: int) -> None:
    done = run_forked(KNOWN.replace("STEPS", str(steps)), env={"INSTRUMENTED_OPS": "always"})
    ops, summary = ops_of(done), done.report["summary"]
    assert ops["status"] == "exact" and ops["observed_pct"] == 100
    # Two ops in each graph, four between them.
    assert (summary["captured_ops"], summary["total_ops"]) == (4 * steps, 8 * steps + 1)
    rows = {(row["op"], row["line"]): row["count"] for row in ops["missing"]}
    assert rows == dict.fromkeys(LINES, steps) | RANDN
    assert {row["function"] for row in ops["missing"]} == {"step", "<module>"}
    assert {os.path.basename(row["file"]) for row in ops["missing"]} == {"program0.py"}
    assert {row["op"]: row["count"] for row in ops["eager"]} == {
        "aten::add": 2 * steps,
        "aten::layer_norm": steps,
        "aten::mul": steps,
        "aten::randn": 1,
    }


@pytest.mark.full
def test_always_waits_for_the_library(run_forked: RunProgram, tmp_path: Any) -> None:
    """Which takes seconds to build on a machine's first run, longer than a warm compilation."""
    run_forked(KNOWN.replace("STEPS", "1"))
    patient = (
        "\n    from instrumented_backend.observe.native import build\n    build.PATIENCE_S = 600"
    )
    done = run_forked(
        patient + KNOWN.replace("STEPS", "5"),
        env={"INSTRUMENTED_OPS": "always", "XDG_CACHE_HOME": str(tmp_path / "empty")},
    )
    assert ops_of(done)["status"] == "exact"
    assert done.report["summary"]["total_ops"] == 8 * 5 + 1


@pytest.mark.full
@pytest.mark.parametrize("eager", [0, 2000])
def test_a_machines_first_run(run_forked: RunProgram, tmp_path: Any, eager: int) -> None:
    """What ran before the library was built may be ops; the rest is exact."""
    run_forked(KNOWN.replace("STEPS", "1"))
    before = f"    for _ in range({eager}): torch.mm(X, X)\n"
    start = "    x = torch.randn(64)\n"
    program = KNOWN.replace("STEPS", "5").replace(start, start + before)
    program = "\n    import torch; X = torch.ones(64, 64)\n" + program
    patient = (
        "    from instrumented_backend.observe.native import build\n    build.PATIENCE_S = 600\n"
    )
    env = {"XDG_CACHE_HOME": str(tmp_path / "empty")}
    done = run_forked("\n" + patient + program, env=env)
    ops, summary = ops_of(done), done.report["summary"]
    assert ops["status"] == "sampled"
    # At least what came after is known, and the rest is no more than may be.
    truth, captured = 8 * 5 + 1 + eager, 4 * 5
    assert summary["captured_ops"] == captured
    assert 8 * 5 <= summary["total_ops"] <= truth
    assert abs(summary["pct_ops"] - 100 * captured / truth) <= ops["pct_ops_spread"]
    found = {row["op"]: row["count"] for row in ops["eager"]}
    assert found["aten::add"] == 2 * 5 and found["aten::layer_norm"] == found["aten::mul"] == 5
    rows = {row["row"]: row for row in done.report["ledger"]["rows"] if row["threads"] == "main"}
    assert rows["python"]["spread_s"] == rows["eager_ops"]["spread_s"] >= ops["unaccounted_s"] > 0


@pytest.mark.full
@pytest.mark.parametrize("steps", [5, 1000])
def test_auto_is_within_two_percent(run_forked: RunProgram, steps: int) -> None:
    done = run_forked(known(steps, "" if steps == 5 else SHORT_WARM_UP))
    ops, summary = ops_of(done), done.report["summary"]
    assert ops["status"] == ("exact" if steps == 5 else "sampled")
    assert (ops["observed_pct"] == 100) == (steps == 5)
    assert summary["captured_ops"] == 4 * steps
    assert summary["total_ops"] == 8 * steps + 1
    rows = {(row["op"], row["line"]): row["count"] for row in ops["missing"]}
    assert rows == dict.fromkeys(LINES, steps) | RANDN
    word = "exact" if steps == 5 else "sampled"
    assert f"· {word}, " in " ".join(done.stderr.split())


@pytest.mark.full
def test_time_that_no_window_saw_is_said(run_forked: RunProgram) -> None:
    """Nothing is made up for it; a short run is watched to its end."""
    unseen = """
    backend._session.ops.pause(True)
    step(x)
    import time
    time.sleep(1.5)
    """
    done = run_forked(known(2000) + unseen)
    ops = ops_of(done)
    assert ops["status"] == "sampled" and ops["unaccounted_s"] > 1
    assert ops["note"] in done.report["notes"]
    assert "s of the run is not known: no window saw" in " ".join(done.stderr.split())


def test_the_two_graph_model(run_forked: RunProgram) -> None:
    """Eight ops, a graph break that runs none, ten steps."""
    done = run_forked(
        """
        import torch
        first, second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        def f(x):
            x = first(x).relu() * 2 + 1
            torch._dynamo.graph_break()
            return (second(x).softmax(-1) * 3).sum()
        x = torch.randn(4, 8)
        compiled = torch.compile(f, backend="instrumented")
        with torch.no_grad():
            for _ in range(10):
                compiled(x)
        """
    )
    summary = done.report["summary"]
    assert (summary["captured_ops"], summary["total_ops"]) == (80, 80)
    assert (summary["pct_ops"], summary["pct_time"]) == (100, 100)
    assert "captured 80/80 ops (100.0 %)" in done.stderr


TRAINING = """
    import torch, instrumented_backend
    layer = torch.nn.Linear(8, 8)
    compiled = torch.compile(lambda x: layer(x).relu().sum(), backend="instrumented")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, foreach=False)
    x = torch.randn(4, 8)
    for _ in range(10):
        compiled(x).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    "lazy",
    [pytest.param(True, marks=pytest.mark.full, id="cold"), pytest.param(False, id="warm")],
)
def test_training(run_forked: RunProgram, lazy: bool) -> None:
    """The compiler's own ops, in a lazily compiled backward for one, are not the program's."""
    env = {"INSTRUMENTED_OPS": "always"}
    if lazy:
        env["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    done = run_forked(TRAINING, env=env)
    ops = ops_of(done)
    # Forward: linear, relu, sum. Backward: the nodes of sum, relu, addmm and the transposition.
    assert done.report["summary"]["captured_ops"] == 10 * (3 + 4)
    assert {row["op"]: row["count"] for row in ops["eager"]} == {
        "aten::ones_like": 10,  # backward()'s own gradient
        "torch::autograd::AccumulateGrad": 20,
        "aten::add_": 20,  # SGD, two parameters
        "aten::randn": 1,
    }
    places = {row["op"]: (row["line"], row["count"]) for row in ops["missing"]}
    assert places["aten::add_"] == (9, 20)  # optimizer.step()
    assert places["torch::autograd::AccumulateGrad"] == (8, 20)  # backward()


@pytest.mark.full
def test_what_happens_on_other_threads_is_seen(run_forked: RunProgram) -> None:
    """Threads end while a window is open."""
    done = run_forked(
        """
        import threading, torch
        compiled = torch.compile(lambda x: x.sin() * 2, backend="instrumented")
        x = torch.randn(8)
        compiled(x)
        def work():
            for _ in range(50):
                compiled(x)
                x.add(1)
                x.mul(2)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """,
        env={"INSTRUMENTED_OPS": "always"},
    )
    assert done.report["summary"]["captured_ops"] == 2 * 201
    assert done.report["summary"]["total_ops"] == 2 * 201 + 2 * 200 + 1


@pytest.mark.full
def test_a_fork_while_a_window_is_open(run_forked: RunProgram) -> None:
    done = run_forked(
        """
        import os, sys, torch
        compiled = torch.compile(lambda x: x.sin() * 2, backend="instrumented")
        x = torch.randn(8)
        compiled(x).add(1)
        child = os.fork()
        for _ in range(3):
            compiled(x).add(1)
        if not child:
            os._exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        env={"INSTRUMENTED_OPS": "always"},
    )
    assert done.stdout == "3\n"
    assert done.report["summary"]["total_ops"] == 4 * 2 + 4 + 1


def test_print_missing(run_forked: RunProgram) -> None:
    done = run_forked(known(100), env={"TORCHDYNAMO_PRINT_MISSING": "1"})
    printed = [line for line in done.stderr.splitlines() if line.startswith("MISSING ")]
    assert len(printed) == len(LINES) + len(RANDN)
    assert any("aten::layer_norm" in line and "program0.py:12 in step" in line for line in printed)


def test_off(run_forked: RunProgram) -> None:
    done = run_forked(KNOWN.replace("STEPS", "5"), env={"INSTRUMENTED_OPS": "off"})
    assert done.report["summary"]["captured_ops"] is None
    assert "captured -/- ops: INSTRUMENTED_OPS=off" in done.stderr


def test_without_a_compiler(run_forked: RunProgram, tmp_path: Any) -> None:
    """Inductor needs one of its own on CPU; this one fails for the op meter alone."""
    compiler = tmp_path / "g++"
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in *_op_meter.cpp*) echo "error: broken" >&2; exit 1;; esac\n'
        f'exec {shutil.which("g++")} "$@"\n'
    )
    compiler.chmod(0o755)
    # Set once Inductor has read the variable: another compiler would make all it has cached cold.
    prelude = f"import os, torch._inductor.config; os.environ['CXX'] = {str(compiler)!r}\n"
    env = {"XDG_CACHE_HOME": str(tmp_path / "empty")}
    done = run_forked(prelude + textwrap.dedent(KNOWN.replace("STEPS", "5")), env=env)
    assert done.report["summary"]["total_ops"] is None
    said = " ".join(done.stderr.split())
    assert "captured -/- ops: no op meter: " in said and "exit code 1: error: broken" in said
    assert done.report["summary"]["graph_calls"] == 10


def test_reset_starts_afresh(run_forked: RunProgram) -> None:
    done = run_forked(
        KNOWN.replace("STEPS", "5") + "    instrumented_backend.reset()\n"
        "    for _ in range(7): step(x)\n",
        env={"INSTRUMENTED_OPS": "always"},
    )
    assert (done.report["summary"]["captured_ops"], done.report["summary"]["total_ops"]) == (28, 56)


@pytest.mark.full
@pytest.mark.parametrize(("sample_ns", "whole"), [(5_500, True), (10_000_000, False)])
def test_a_window_ends_where_samples_are_slow(
    run_forked: RunProgram, sample_ns: int, whole: bool
) -> None:
    """What a line takes is measured: ten milliseconds for each are more than a window has."""
    slow = f"""
    from instrumented_backend.observe.ops import meter as ops
    ops.ALWAYS_AFFORDABLE_S = 1.0
    meter = backend._session.ops
    work = meter._work_done
    def measured():
        found = work()
        assert found.samples == 0 or found.sample_ns > 0
        found.sample_ns = found.samples * {sample_ns}
        return found
    meter._work_done = measured
    instrumented_backend.reset()
    for _ in range(20_000): step(x)
    while meter._is_warm_up and not {whole}: step(x)
    """
    ops = ops_of(run_forked(textwrap.dedent(known(1) + slow)))
    if whole:
        assert (ops["status"], ops["observed_pct"]) == ("exact", 100)
    else:
        assert ops["status"] == "sampled" and ops["observed_pct"] < 100


# The first window, which would see a short run whole, has ended halfway.
HALFWAY = """
    meter = instrumented_backend.backend._session.ops
    def turns():
        steps = 0
        while steps < 1500 or meter._mode == "auto" and meter._is_warm_up:
            steps += 1
            yield
        for _ in range(1500):
            steps += 1
            yield
        print(steps)
"""


@pytest.mark.full
def test_modes_agree(run_forked: RunProgram) -> None:
    """Training steps, of which ``auto`` sees a few: the percentage of ops within a point, or within
    what it says itself."""
    loop = "    for _ in range(10)"
    program = TRAINING.replace(loop, f"{SHORT_WARM_UP}{HALFWAY}    for _ in turns()")
    found, spreads = {}, {}
    for mode, status in (("auto", "sampled"), ("always", "exact")):
        done = run_forked(program, env={"INSTRUMENTED_OPS": mode})
        assert ops_of(done)["status"] == status
        found[mode] = done.report["summary"]
        assert found[mode]["captured_ops"] == int(done.stdout) * (3 + 4)
        spreads[mode] = ops_of(done)["pct_ops_spread"]
    within = max(1.0, 2 * spreads["auto"])
    assert found["auto"]["pct_ops"] == pytest.approx(found["always"]["pct_ops"], abs=within)


@pytest.mark.full
def test_memory_does_not_grow_with_the_run(run_program: RunProgram) -> None:
    """A million eager ops and 100,000 graph calls, all of them observed."""
    done = run_program(
        """
        import os, torch
        compiled = torch.compile(lambda x: x.sin() * 2, backend="instrumented")
        x = torch.randn(8)
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        def run(calls):
            for _ in range(calls):
                y = compiled(x)
                for _ in range(10):
                    y.add(1)
        run(2000)
        before = resident()
        run(100_000)
        print(resident() - before)
        """,
        env={"INSTRUMENTED_OPS": "always"},
    )
    assert int(done.stdout) < 1_000_000
    assert done.report["summary"]["total_ops"] == 102_000 * 12 + 1


@pytest.mark.full
def test_device_time_without_a_gpu(run_forked: RunProgram) -> None:
    """Unknown, and says why; a profiler of the program's own is not disturbed."""
    done = run_forked(
        """
        import torch
        compiled = torch.compile(lambda x: x.relu() + 1, backend="instrumented")
        for _ in range(20):
            compiled(torch.ones(8))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
            compiled(torch.ones(8))
        print([event.name for event in found.events()].count("TORCHDYNAMO"))
        """,
        env={"INSTRUMENTED_DEVICE_TIME": "on"},
    )
    device = done.report["ops"]["device"]
    assert (device["status"], device["pct_captured"]) == ("unknown", None)
    assert "device time: unknown: no graph was compiled for CUDA" in done.stderr
    assert done.stdout == "1\n"
