"""All the guards that make people recompile, and a program that never stops."""

import re
from pathlib import Path

import pytest
from programs import RunProgram

from instrumented_backend.observe.compile.recompiles import MAX_FUNCTIONS, MAX_VALUES, RecompileLog
from instrumented_backend.observe.messages.guards import FailedGuard

# Nothing but library calls in the graphs: no kernel has to be compiled.
PROGRAM = """\
import contextlib, torch
LIMIT = 3
class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2
        self.drop = torch.nn.Dropout(0.0)
    def forward(self, x):
        return x.mm(x) if self.scale > 1 else x
class Switched(torch.nn.Module):
    def forward(self, x):
        return x.mm(x) if self.training else x.mm(x)
def shape(x): return x.mm(x)
def dtype(x): return x.mm(x)
def stride(x): return x.mm(x)
def integer(x, n): return x.mm(x) if n > 2 else x
def real(x, p): return x.mm(x) if p > 2.0 else x
def boolean(x, flag): return x.mm(x) if flag else x.mm(x)
def none(x, y=None): return x.mm(x) if y is None else x.mm(x)
def global_(x): return x.mm(x) if LIMIT > 2 else x
def grad(x): return x.mm(x)
def autocast(x): return x.mm(x)
def device(x): return x.mm(x)
def often(x, text): return x.mm(x) if text else x
def again(function, *calls):
    compiled = torch.compile(function, backend="instrumented")
    for call in calls:
        call(compiled)
x = torch.ones(4, 4)
again(shape, lambda f: f(x), lambda f: f(torch.ones(5, 5)))
again(dtype, lambda f: f(x), lambda f: f(x.double()))
again(stride, lambda f: f(x), lambda f: f(x.t()))
again(integer, lambda f: f(x, 3), lambda f: f(x, 4))
again(real, lambda f: f(x, 3.5), lambda f: f(x, 4.5))
again(boolean, lambda f: f(x, True), lambda f: f(x, False))
again(none, lambda f: f(x), lambda f: f(x, x))
def change(f):
    global LIMIT
    LIMIT = 7
    f(x)
again(global_, lambda f: f(x), change)
scaled, switched = Scaled(), Switched()
again(scaled, lambda f: f(x), lambda f: (setattr(scaled, "scale", 5), f(x)))
again(switched, lambda f: f(x), lambda f: (switched.eval(), f(x)))
def without_grad(f):
    with torch.no_grad():
        f(x)
again(grad, lambda f: f(x), without_grad)
def in_autocast(f):
    with torch.autocast("cpu"):
        f(x)
again(autocast, lambda f: f(x), in_autocast)
again(device, lambda f: f(x), lambda f: f(x.to("meta")))
again(often, *[lambda f, n=n: f(x, "a" * n) for n in range(1, 12)])
"""
EXPECTED = {
    "shape": ("size of x in dimension 0", ["4", "5"]),
    "dtype": ("dtype of x", ["Float", "Double"]),
    "stride": ("stride of x in dimension 0", ["4", "1"]),
    "integer": ("n", ["3", "4"]),
    "real": ("p", ["3.5", "4.5"]),
    "boolean": ("flag", ["True", "False"]),
    "none": ("y", ["None", "a tensor"]),
    "global_": ("global LIMIT", ["3", "7"]),
    "forward 8": ("self.scale", ["2", "5"]),
    "forward 11": ("self.training (train() and eval())", ["True", "False"]),
    "grad": ("grad mode (torch.no_grad, enable_grad)", ["True", "False"]),
    "autocast": ("autocast(cpu) enabled", ["False", "True"]),
    "device": ("device of x", ["cpu", "meta"]),
}


@pytest.mark.full
def test_every_guard_in_the_users_terms(run_program: RunProgram) -> None:
    done = run_program(
        PROGRAM,
        env={"TORCH_LOGS": "recompiles", "INSTRUMENTED_TABLES": "summary,recompiles"},
        timeout=600,  # two dozen compilations, on a machine that may be busy
    )
    report = done.report
    records = {
        record["function"]
        + (f" {record['line']}" if record["function"] == "forward" else ""): record
        for record in report["recompiles"]
    }
    for function, (subject, values) in EXPECTED.items():
        record = records[function]
        (guard,) = record["guards"]
        assert (guard["subject"], guard["values"]) == (subject, values), function
        assert (record["count"], guard["count"]) == (1, 1)
        assert record["compile_s"] > 0 and guard["cure"]
    assert records["integer"]["guards"][0]["source"].startswith("def integer(x, n)")

    # The recompile limit: 8 versions, 7 of them again, and one call refused.
    often = records["often"]
    assert (often["count"], often["limit_hits"]) == (7, 1)
    (guard,) = often["guards"]
    assert guard["values"] == [repr("a" * n) for n in range(1, MAX_VALUES + 1)]
    assert guard["count"] == 7 and guard["more_values"]
    assert report["recompiles"][0] == often  # what has reached the limit comes first
    assert set(records) == {*EXPECTED, "often"}
    (limit,) = report["breaks"]
    assert (limit["kind"], limit["function"]) == ("gave up", "often")

    # As TORCH_LOGS has them; it counts the refused one, too.
    logged = re.findall(r"Recompiling function (\w+) in \S+program0.py:(\d+)", done.stderr)
    assert len(logged) == report["summary"]["recompiles"] + 1 == len(EXPECTED) + 8
    assert {(r["function"], str(r["line"])) for r in records.values()} == set(logged)

    assert "20 recompiles" in done.stderr
    assert "RECOMPILE LIMIT REACHED" in done.stderr
    table = done.stderr[done.stderr.index("Functions recompiled") :]
    assert all(len(line) <= 80 for line in table.splitlines())


def failed(subject: str, old: str, new: str) -> FailedGuard:
    return FailedGuard("int", subject, old, new, None, None, f"{subject} == {old}")


def test_counts_stay_exact_and_memory_bounded() -> None:
    log = RecompileLog()
    for n in range(100_000):
        recompiled = log.add(
            f"0/{n + 1}", ("f", "/me/model.py", 1), "why", [failed("n", str(n), str(n + 1))], False
        )
        assert recompiled is not None
        recompiled.took(0.5)
    (record,) = log.records()
    assert (record.count, record.compile_s, record.compile_id) == (100_000, 50_000.0, "0/1")
    assert record.guards[0].count == 100_000
    assert record.guards[0].values == ["0", "1", "2", "3", "4", "5"]
    for n in range(MAX_FUNCTIONS + 10):
        log.add(f"{n}/1", (f"g{n}", "/me/model.py", 1), "why", [], False)
    assert len(log.records()) == MAX_FUNCTIONS
    assert log.left_out == 11 and log.count == 100_000 + MAX_FUNCTIONS + 10


def test_many_guards_of_one_function() -> None:
    log = RecompileLog()
    for n in range(60):
        log.add(f"0/{n + 1}", ("f", "/me/model.py", 1), "why", [failed(f"n{n}", "1", "2")], False)
    (record,) = log.records()
    assert (len(record.guards), record.guards_left_out) == (50, 10)


def test_a_guard_that_fails_against_several_versions_fails_once() -> None:
    log = RecompileLog()
    log.add("0/2", ("f", "m", 1), "why", [failed("n", "4", "5"), failed("n", "3", "5")], False)
    (record,) = log.records()
    assert record.guards[0].count == 1
    assert record.guards[0].values == ["4", "5"]  # against the newest


def recompiled(log: RecompileLog, took_s: float, *guards: FailedGuard) -> None:
    recompilation = log.add("0/1", ("f", "m", 1), "why", guards, False)
    assert recompilation is not None
    recompilation.took(took_s)


def test_the_guard_that_decided_is_the_one_whose_value_is_new() -> None:
    """A version for eval() fails in train(), too: but there is one for train()."""
    size = "size of x in dimension 0"
    log = RecompileLog()
    recompiled(log, 1.0, guard("training", "training", "True", "False"))  # to eval()
    # In train() with another size: the version for eval() fails on the mode, the other on the size.
    recompiled(
        log, 2.0, guard("training", "training", "False", "True"), guard("shape", size, "4", "7")
    )
    # And in eval() with a third size.
    recompiled(
        log, 4.0, guard("training", "training", "True", "False"), guard("shape", size, "4", "9")
    )
    (record,) = log.records()
    assert record.compile_s == 7.0
    assert record.decided_s == {"training": 1.0, "shape": 6.0}
    assert {g.kind: (g.count, g.decided, g.decided_s) for g in record.guards} == {
        "training": (3, 1, 1.0),
        "shape": (2, 2, 6.0),
    }


def test_several_guards_decide_together_and_seconds_are_counted_once_a_kind() -> None:
    log = RecompileLog()
    sizes = [guard("shape", f"size of {name} in dimension 0", "4", "5") for name in "xy"]
    recompiled(log, 1.5, *sizes, guard("dtype", "dtype of x", "Float", "Double"))
    # None of the values is new: it is their combination.
    back = [guard("shape", f"size of {name} in dimension 0", "5", "4") for name in "xy"]
    recompiled(log, 2.0, *back)
    # What it met is unknown: it may be new.
    recompiled(log, 4.0, guard("object", "which f", None, None))
    (record,) = log.records()
    assert record.decided_s == {"shape": 3.5, "dtype": 1.5, "object": 4.0}


def guard(kind: str, subject: str, old: str | None, new: str | None) -> FailedGuard:
    return FailedGuard(kind, subject, old, new, None, None, subject)


def test_relative_paths_of_reasons_become_the_functions(tmp_path: Path) -> None:
    from instrumented_backend.observe.messages.reasons import Frame

    file = str(tmp_path / "model.py")
    guard = FailedGuard(
        "int", "n", "3", "4", Frame(f"{tmp_path.name}/model.py", 9, "f"), None, "n == 3"
    )
    log = RecompileLog()
    log.add("0/1", ("f", file, 1), "why", [guard], False)
    assert log.records()[0].guards[0].file == file


@pytest.mark.full
def test_code_without_a_graph_is_recompiled_too(run_forked: RunProgram) -> None:
    """It breaks at once; torch's own records of its compilations say which were not the first."""
    done = run_forked(
        """
        import torch, torch._dynamo
        def recompilations():
            metrics = torch._dynamo.utils.get_compilation_metrics()
            return sum(bool(one.recompile_reason) for one in metrics)
        before = recompilations()
        class Model(torch.nn.Module):
            def forward(self, x):
                rows = x.shape[0]
                torch._dynamo.graph_break()
                return x.mm(x) if rows > 1 else x
        compiled = torch.compile(Model(), backend="instrumented", dynamic=False)
        for size in (2, 3, 4):
            compiled(torch.ones(size, size))
        print(recompilations() - before)
        """,
        env={"INSTRUMENTED_LOG": "info"},
    )
    again = re.findall(r"INFO: compiling (.*) \(.*\) again: ", done.stderr)
    assert sorted(again) == ["forward", "forward", "the rest of forward", "the rest of forward"]
    assert done.stdout == "4\n"
    assert done.report["summary"]["recompiles"] == 4
    assert [one["count"] for one in done.report["recompiles"]] == [2, 2]
