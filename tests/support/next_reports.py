"""Reports with one thing in them to say of what to change next."""

from dataclasses import replace

from sample_report import sample

from instrumented_backend.records import (
    BreakRecord,
    GapLineRecord,
    GapRecord,
    GraphRecord,
    GuardRecord,
    LedgerRow,
    LedgerSection,
    NextStep,
    RecompileRecord,
    Report,
)
from instrumented_backend.views.next_steps import next_steps
from instrumented_backend.views.text import render

S = 1e6  # µs
FILE = "/home/me/train.py"


def report(wall_s: float = 100.0, **rows: float) -> Report:
    """Nothing to say of it, but what the ledger's ``rows`` have."""
    made = sample()
    made.ledger = LedgerSection(
        wall_s=wall_s,
        rows=[LedgerRow(name, "main", took, None, 0.0, "exact") for name, took in rows.items()],
    )
    made.ops.status = "exact"
    made.graphs = [
        GraphRecord(graph=n, calls=100, forward_time_us=2 * S, backward_time_us=1 * S, cache="hit")
        for n in range(2)
    ]
    made.compile = replace(made.compile, total_s=0.0, phases={}, compilations=[])
    made.kernels, made.breaks, made.recompiles, made.compiled = [], [], [], []
    made.ops.missing, made.ops.gaps = [], []
    return made


def gap(
    time_s: float, eager_s: float, line: int | None = None, op: str = "aten::add", **of: object
) -> GapRecord:
    """From the forward of graph 0 to nothing known."""
    lines = [] if line is None else [GapLineRecord(FILE, line, "step", op, eager_s * S)]
    plain = GapRecord(
        *(0, False, None, False, False, None, False, None, 100, time_s * S, eager_s * S, lines)
    )
    return replace(plain, **of)


def broken(**of: object) -> BreakRecord:
    plain = BreakRecord("break", "No.", FILE, 9, "step", 1, hint="Do it.", eager_time_us=0.0)
    return replace(plain, **of)


def only(made: Report) -> NextStep:
    (step,) = next_steps(made)
    return step


def told(made: Report) -> str:
    (line,) = [
        part for part in " ".join(render(made, ("summary",), 80).split()).split("next: ")[1:]
    ]
    return line


def recompiled(compile_s: float, **decided_s: float) -> RecompileRecord:
    guards = [
        GuardRecord(kind, f"the {kind}", cure=f"cure the {kind}", decided_s=took)
        for kind, took in decided_s.items()
    ]
    return RecompileRecord(
        *("0/1", "f", FILE, 3, None),
        compile_s=compile_s,
        guards=guards,
        decided_s=decided_s,
    )
