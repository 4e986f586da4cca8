"""What `top` shows of a made-up run, written into the page about it.

python docs/top_picture.py             # write it anew
python docs/top_picture.py --check     # exit code 1 where it is another
"""

import io
import os
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from instrumented_backend.records import (
    Compiling,
    GuardRecord,
    LedgerRow,
    LedgerSection,
    RecompileRecord,
    RunSection,
)
from instrumented_backend.records.follow import FollowedReport, Follower, Moment
from instrumented_backend.records.live import LiveReport, read_live
from instrumented_backend.views.top.events import BAD, Event, events
from instrumented_backend.views.top.names import Label
from instrumented_backend.views.top.screen import picture
from instrumented_backend.views.top.watched import Watched

DOCS = Path(__file__).parent
PAGE = DOCS / "watching.md"
RECORDED = DOCS.parent / "tests" / "data" / "reports" / "training.json"
COMMAND = "$ instrumented-backend top /runs/gpt2"
NOON = 1_800_014_400.0  # 12:00:00 UTC
WIDTH, HEIGHT = 80, 32
_BLOCK = re.compile(
    rf"(?<=```console\n{re.escape(COMMAND)}\n).*?(?=^```$)", re.DOTALL | re.MULTILINE
)

# Seconds of the main thread, after 600 s.
LEDGER = {
    "startup": 9.0,
    "compile": 60.0,
    "captured": 366.0,
    "eager_ops": 48.0,
    "data": 3.0,
    "python": 114.0,
}
WHY = "size of input_ids in dimension 1: 64 → 48"


def made_up(rank: int, ago_s: float, calls: int, recompiles: int, compiling: bool) -> LiveReport:
    """The report that a rank made so long before noon."""
    report = read_live(RECORDED)
    report.run = RunSection("2.15.0", "NVIDIA H200", rank, 4711 + rank, status="running")
    report.run.command = "train.py --epochs 3"
    report.run.seen_at = NOON - ago_s
    report.summary = replace(report.summary, graph_calls=calls, backward_calls=calls, graphs=2)
    report.summary.graph_breaks, report.summary.recompiles = 1, recompiles
    report.ledger = LedgerSection(
        600.0 - ago_s,
        [
            LedgerRow(row, "main", seconds, 100 * seconds / 600, 0.0, "exact")
            for row, seconds in LEDGER.items()
        ],
    )
    guard = GuardRecord("shape", "size of input_ids in dimension 1", ["128", "96", "64"])
    guard.file, guard.line = "/home/me/model.py", 88
    again = RecompileRecord("0/1", "forward", "/home/me/train.py", 39, None, recompiles, 23.0)
    again.guards = [guard]
    report.recompiles = [again]
    report.compiling = (
        [
            Compiling(
                *("0/3", "forward", "/home/me/train.py", 39, NOON - 12, WHY),
                *(guard.file, guard.line),
            )
        ]
        if compiling
        else []
    )
    return report


def watched() -> Watched:
    """Four ranks at noon; two of them compile, and one has died."""
    state = Watched("/runs/gpt2", Follower(lambda: [], lambda run: False))
    state.now_s = state.now_at = NOON
    state.log.append(Event(NOON - 52, "died: its process is gone", BAD, who=[Label("rank 3", 3)]))
    for rank, (calls, compiling) in enumerate(
        [(23_940, True), (23_940, True), (24_118, False), (24_101, False)]
    ):
        before = made_up(rank, 22, calls - 400, 2, False)
        now = made_up(rank, 4, calls, 2, compiling)
        ago_s = 4 if rank != 3 else 60
        known = FollowedReport(Path(f"rank{rank}"), now, changed_s=NOON - ago_s)
        known.is_alive, known.was_alive = rank != 3, True
        steps = (0, 100, 205, 310, 400) if not compiling else (0, 170, 290, 390, 400)
        for number, step in enumerate(steps):
            known.moments.append(Moment(NOON - 44 + 10 * number, calls - 400 + step))
        state.reports.append(known)
        for event in events(now, before):
            event.who.append(Label(f"rank {rank}", rank))
            state._keep(event)
    return state


def text() -> str:
    os.environ["TZ"] = "UTC"
    time.tzset()
    console = Console(width=WIDTH, height=HEIGHT, record=True, file=io.StringIO())
    console.print(picture(watched(), WIDTH, HEIGHT))
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    return "\n".join(lines) + "\n"


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    made = _BLOCK.sub(lambda _: text(), page, count=1)
    if "--check" in sys.argv:
        sys.exit(made != page)
    PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
