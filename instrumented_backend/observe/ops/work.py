"""What the op meter's windows have done so far, and what that has cost."""

import ctypes
from typing import Any

from instrumented_backend.observe.native.build import Work

# What PyTorch takes for each event; what our own part takes is measured. A budget's figure: for
# what is taken off a gap's time, the native part has its own, by op.
EVENT_S = 0.15e-6


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
