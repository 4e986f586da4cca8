"""What happens in the processes that are watched, as lines: for pipes and files."""

import time

from instrumented_backend.records.follow import ENDED, FollowedReport
from instrumented_backend.records.report import RUNNING
from instrumented_backend.units import elapsed, whole_percent
from instrumented_backend.views.gpu import gpu_lines
from instrumented_backend.views.meanings import ledger_words
from instrumented_backend.views.top.events import Event
from instrumented_backend.views.top.names import labels, together
from instrumented_backend.views.top.watched import Watched, who
from instrumented_backend.views.words import count, in_line

WORTH_NAMING_PCT = 1.0  # of the wall time


def event_line(event: Event, watched: Watched) -> str:
    """``"12:40:51 ranks 0-2: recompiled forward (train.py:39): size of x ..."``"""
    whose = who(event, len(watched.reports))
    return in_line(f"{clock(event.at)} {f'{whose}: ' if whose else ''}{event.words}")


def status_line(watched: Watched) -> str:
    """How far the processes are that run now."""
    parts = [f"{clock(watched.now_at)} {processes(watched)}"]
    running = watched.in_state(RUNNING)
    if rates := rate_words(running):
        parts.append(rates)
    if running and (ledger := ledger_words_of(running[0])):
        parts.append(ledger)
    if running and (report := running[0].report) is not None:
        parts += gpu_lines(report.gpu)
    parts += [
        f"compiling {each.what} for {elapsed(each.for_s)}"
        + (f" ({together(each.who)})" if len(watched.reports) > 1 else "")
        for each in watched.compiling()
    ]
    return in_line(" · ".join(parts))


def clock(at: float) -> str:
    """The time of day, here; dashes where the number is no time of ours."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return "--:--:--"


def processes(watched: Watched) -> str:
    """``"4 processes: 3 running, 1 died (rank 2)"``"""
    states = watched.states()
    if len(watched.reports) == 1:
        return next(iter(states))
    names = labels(watched.reports)
    parts = []
    for state, number in states.most_common():
        which = together(names[each] for each in watched.in_state(state))
        is_news = state not in (RUNNING, ENDED) and number < len(watched.reports)
        parts.append(f"{number} {state}{f' ({which})' if is_news else ''}")
    return f"{len(watched.reports)} processes: {', '.join(parts)}"


def rate_words(running: list[FollowedReport]) -> str:
    """``"41.2 graph calls/s"``, ``"39.8 (rank 17) … 41.2 graph calls/s"``"""
    rates = [(rate, each) for each in running if (rate := each.rate()) is not None]
    if not rates:
        return ""
    names = labels(running)
    low, slowest = min(rates, key=lambda known: known[0])
    high, _ = max(rates, key=lambda known: known[0])
    if len(rates) == 1 or figure(low) == figure(high):
        return f"{figure(high)} graph calls/s"
    return f"{figure(low)} ({names[slowest].text}) … {figure(high)} graph calls/s"


def figure(rate: float) -> str:
    """``"0.05"``, ``"41.2"``, ``"1,234"``"""
    if 0 < rate < 1:
        return f"{rate:.2f}"
    return f"{rate:.1f}" if rate < 1000 else f"{rate:,.0f}"


def ledger_words_of(known: FollowedReport) -> str:
    """``"compiled code 61 %, eager ops 17 %"``, the largest first."""
    if known.report is None:
        return ""
    ledger = known.report.ledger
    shares = [
        (share, row.row)
        for row in ledger.rows
        if row.threads == "main" and (share := ledger.share_pct(row)) is not None
    ]
    named = sorted((share for share in shares if share[0] >= WORTH_NAMING_PCT), reverse=True)
    return ", ".join(f"{ledger_words(row)} {whole_percent(share)}" for share, row in named)


def nothing_yet(watched: Watched) -> str:
    """What there is to say where no report has been found."""
    if watched.problem is not None:
        return watched.problem
    if watched.waiting:
        return f"reading {count(watched.waiting, 'report')}"
    return (
        f"{watched.name}: no report yet; a program keeps one in its INSTRUMENTED_DIR from "
        "its first compilation on"
    )
