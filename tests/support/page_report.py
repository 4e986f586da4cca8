"""Reports with source lines, and the files that these are in, for tests of the page."""

import hashlib
from dataclasses import replace
from pathlib import Path

from sample_report import sample

from instrumented_backend.records import (
    BreakRecord,
    CompileRecord,
    FileRecord,
    GraphRecord,
    GuardRecord,
    KernelRecord,
    LedgerRow,
    LedgerSection,
    LineRecord,
    MissingRecord,
    Report,
)

PROGRAM = '''"""A model."""

def step(model, x):
    y = model(x).relu()
    print("loss", y.sum())
    return y.add(1)
'''
HOSTILE = (
    "<script>window.hacked=1</script></style>\u202e\x1b[31m\udcff\"'><img src=x onerror=hacked=1>"
)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def page_report(folder: Path, rank: int = 0) -> Report:
    """One line captured, one both and broken, one recompiled, one eager; 30 of 40 ops captured.

    Eager ops took 1,000 µs: 750 on line 5, 250 on line 6.
    """
    path = folder / "program.py"
    path.write_text(PROGRAM)
    file = str(path)
    report = sample()
    report.run.rank, report.run.command = rank, "program.py --steps 3"
    report.lines = [
        LineRecord(file, 5, "step", 6, 4, 2, {"sum": 1}, [0], 7, 0.0, 750.0, breaks=[0]),
        LineRecord(file, 6, "step", 0, 0, 0, {}, [], 3, 0.0, 250.0),
        LineRecord(file, 4, "step", 24, 16, 8, {"linear": 2}, [0], 0, 0.0, 0.0, kernels=[0]),
        LineRecord(file, 3, "step", 0, 0, 0, recompiles=1, recompile_s=2.5, guards=[0]),
    ]
    report.files = [FileRecord(file, digest(PROGRAM))]
    report.breaks = [replace(report.breaks[0], file=file, line=5, skipped=[])]
    report.recompiles = [
        replace(
            report.recompiles[0],
            file=file,
            line=3,
            guards=[
                GuardRecord("shape", "size of x", ["4", "5"], file=file, line=3, cure="mark it")
            ],
        )
    ]
    report.ops.missing = [
        MissingRecord("aten::item", file, 5, "step", 7, 750.0, 75.0, 7.5, 0.0),
        MissingRecord("aten::add", file, 6, "step", 3, 250.0, 25.0, 2.5, 0.0),
    ]
    report.graphs.append(replace(report.graphs[0], graph=1, compile_id="1/0", calls=4))
    report.kernels = [
        KernelRecord(f"kernel_{number}", "cpp", 0, "forward", total_bytes=size, calls=1)
        for number, size in enumerate([300, 20, 1_000, 5, 7, 11, 13, 17, 19])
    ]
    report.kernels[0].source_lines = [f"{file}:4"]
    report.ledger = LedgerSection(
        2.0,
        [
            LedgerRow("startup", "main", 0.5, 25.0, 0.0, "exact"),
            LedgerRow("captured", "main", 1.0, 50.0, 0.0, "exact"),
            LedgerRow("eager_ops", "main", 0.25, 12.5, 0.125, "sampled"),
            LedgerRow("python", "main", 0.25, 12.5, 0.125, "sampled"),
        ],
    )
    return report


def hostile_report(folder: Path) -> Report:
    """Text that would run, or turn a line round, wherever a report has text of others."""
    report = page_report(folder)
    source = f"x = 1  # {HOSTILE}\ny = {'z' * 10_000_000}\n"
    name = f"{HOSTILE.replace('/', '|')}.py"
    report.files = [FileRecord(str(folder / name)), FileRecord(str(folder / "text.py"))]
    (folder / "text.py").write_text(source, errors="surrogateescape")
    report.lines = [
        LineRecord(str(folder / name), 1, HOSTILE, 1, 1, 0, {HOSTILE: 1}, [0], 1, 0.0, 5.0, [0]),
        LineRecord(str(folder / "text.py"), 1, HOSTILE, 0, 0, 0, {}, [], 1, 0.0, 2.0),
    ]
    report.run.command = HOSTILE
    report.graphs[0] = GraphRecord(0, "0/0", HOSTILE, name, 1, name=HOSTILE, ended_by=HOSTILE)
    report.breaks = [BreakRecord("break", HOSTILE, name, 1, HOSTILE, 1, HOSTILE, HOSTILE)]
    guard = GuardRecord(
        HOSTILE, HOSTILE, [HOSTILE], file=name, line=1, source=HOSTILE, cure=HOSTILE
    )
    report.recompiles[0].guards = [guard]
    report.ops.missing = [MissingRecord(HOSTILE, str(folder / name), 1, HOSTILE, 1, 5.0, 100.0)]
    report.kernels = [
        KernelRecord(HOSTILE, "cpp", 0, "forward", HOSTILE, kernel_category=HOSTILE),
    ]
    report.kernels[0].source_lines = [f"{HOSTILE}:1"]
    report.kernels[0].notes, report.kernels[0].note_codes = [HOSTILE], ["other"]
    report.compile.compilations = [
        CompileRecord("0/0", "forward", HOSTILE, name, 1, "compiled", [0], {"dynamo_s": 1.0}, 1.0)
    ]
    report.add_note("other", HOSTILE)
    return report
