"""Programs that keep their reports current, without the programs.

    python tests/support/live_reports.py /tmp/run --ranks 64

rewrites the reports of so many ranks, each whole, as running programs do, until it is interrupted.
"""

import argparse
import random
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from sample_report import sample

from instrumented_backend.records import Compiling, GuardRecord, RecompileRecord, Report
from instrumented_backend.records.whole_file import write_whole

STARTED_AT = 1_700_000_000.0  # seconds since 1970; so long ago that nobody expects a report
TO_COME = 4_000_000_000.0  # of which no report is old
NO_PROCESS = 1 << 22  # more than any process's number


def live(
    rank: int = 0,
    pid: int = NO_PROCESS,
    *,
    after_s: float = 100.0,
    calls: int = 3,
    status: str = "running",
    compiling: Iterable[Compiling] = (),
    recompiles: int = 1,
    started_at: float = STARTED_AT,
) -> Report:
    """The sample's, of a program that has run for so long when it makes its report."""
    report = sample()
    report.run.rank, report.run.pid, report.run.status = rank, pid, status
    report.run.command = "train.py --epochs 3"
    report.run.started = datetime.fromtimestamp(started_at, UTC).isoformat(timespec="seconds")
    report.run.wall_s, report.run.seen_at = after_s, started_at + after_s
    report.summary.graph_calls = report.summary.backward_calls = calls
    report.summary.recompiles = recompiles
    report.compiling = list(compiling)
    report.recompiles = [again(recompiles)] if recompiles else []
    scale = after_s / 1.5
    report.ledger.wall_s = after_s
    report.ledger.rows = [
        replace(row, seconds=(row.seconds or 0.0) * scale) for row in report.ledger.rows
    ]
    return report


def again(count: int) -> RecompileRecord:
    """``forward`` of model.py, so often for another size."""
    values = [str(size) for size in (64, 48, 32, 16)[: count + 1]]
    guard = GuardRecord("shape", "size of x in dimension 1", values, count > 3, count)
    guard.file, guard.line, guard.source = "/home/me/model.py", 15, "x = x + 1"
    return RecompileRecord(
        "0/1",
        "forward",
        "/home/me/model.py",
        12,
        "size mismatch",
        count=count,
        compile_s=2.5 * count,
        guards=[guard],
    )


def compiling(since_at: float, function: str = "forward", why: str | None = None) -> Compiling:
    return Compiling("0/1", function, "/home/me/model.py", 12, since_at, why)


def path_of(folder: Path, report: Report) -> Path:
    return folder / f"report.rank{report.run.rank}.pid{report.run.pid}.json"


def keep(folder: Path, report: Report) -> Path:
    """As a program does: whole, or not at all."""
    path = path_of(folder, report)
    write_whole(path, report.to_json() + "\n")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=1)
    options = parser.parse_args()
    started_at, chance = time.time(), random.Random(0)
    calls, recompiles, since_at = [0] * options.ranks, 0, 0.0
    why = "size of x in dimension 1: 64 → 48"
    while True:
        now = time.time()
        if since_at and now - since_at > 6:
            since_at, recompiles = 0.0, recompiles + 1
        elif not since_at and int(now - started_at) % 20 > 15:
            since_at = now
        for rank in range(options.ranks):
            calls[rank] += 0 if since_at else int(50 + chance.random() * 10)
            under_way = [compiling(since_at, why=why)] if since_at else []
            report = live(
                rank,
                NO_PROCESS + rank,
                after_s=now - started_at + 1,
                calls=calls[rank],
                compiling=under_way,
                recompiles=recompiles,
                started_at=started_at,
            )
            keep(options.folder, report)
        time.sleep(1.0)


if __name__ == "__main__":
    main()
