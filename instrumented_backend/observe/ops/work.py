"""What the op meter's windows have done so far, and what that has cost."""

import ctypes
from typing import Any

from instrumented_backend.observe.native.structs import Work

# What PyTorch takes for an event that is in no op; what ops take beyond that is measured.
EVENT_S = 0.15e-6

# The loop has come round when this many marks were none of a new kind, and twice as many as it
# took from the window's beginning to the last that was.
KNOWN_MARKS, KNOWN_TIMES = 12, 2

# While no window is open, how often the main thread's gap is looked at, as a share of the run, and
# what windows may cost that are opened for gaps which are unlike the others.
LOOKS, SHORTEST_LOOK_S, LONGEST_LOOK_S = 0.004, 0.005, 0.05
UNLIKE, UNLIKE_AT_FIRST_S = 0.001, 0.02


def done(lib: Any) -> Work:
    """Since the process began; marks since the last reset."""
    work = Work()
    lib.op_meter_work(ctypes.byref(work))
    return work


def since(lib: Any, before: Work) -> Work:
    now = done(lib)
    for name in ("events", "ops", "op_ns", "samples", "sample_ns", "silences", "open_ns"):
        setattr(now, name, getattr(now, name) - getattr(before, name))
    return now


def spent_s(work: Work) -> float:
    """What windows have cost."""
    return float(work.events * EVENT_S + 1e-9 * (work.op_ns + work.sample_ns))


def is_enough(work: Work, affordable_s: float, most_s: float) -> bool:
    """Of a window that is open: it has cost what it may and has seen the loop, or it has cost
    ``most_s``."""
    known = work.marks - max(work.novel, work.first)
    loop = max(KNOWN_MARKS, KNOWN_TIMES * (work.novel - work.first))
    spent = spent_s(work)
    return spent > affordable_s and (known >= loop or spent > max(most_s, 2 * affordable_s))


def looks_s(elapsed_s: float) -> tuple[float, float]:
    """The time between two looks, and what windows for what they find may have cost."""
    look_s = min(max(LOOKS * elapsed_s, SHORTEST_LOOK_S), LONGEST_LOOK_S)
    return look_s, UNLIKE_AT_FIRST_S + UNLIKE * elapsed_s
