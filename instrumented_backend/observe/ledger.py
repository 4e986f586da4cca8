"""The ledger: where the wall time of the process went, in rows that add up to it."""

import os
import time

from instrumented_backend.observe.ops.estimate import Estimate
from instrumented_backend.observe.ops.observed import Observed
from instrumented_backend.observe.ops.spread import SPREAD
from instrumented_backend.records import LedgerRow, LedgerSection, notes

_STARTED_FIELD = 19  # of /proc/self/stat, after the command's name: start time in clock ticks


def process_age_s() -> float | None:
    """How long the process has been there; None where /proc doesn't say."""
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        started_s = int(fields[_STARTED_FIELD]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s


def ledger_without_meter(startup_s: float, elapsed_s: float, compile_s: float) -> LedgerSection:
    """What is known where there is no op meter; ``compile_s`` as torch has it, of all threads."""
    wall_s = startup_s + elapsed_s
    rows = [
        _row("startup", startup_s, wall_s),
        _row("compile", min(compile_s, elapsed_s), wall_s),
        *(
            LedgerRow(name, "main", None, None, None, "unknown")
            for name in ("captured", "eager_ops", "data", "python")
        ),
    ]
    note = "without the op meter, where the rest of the time went is unknown"
    return LedgerSection(wall_s, rows, note, notes.OPS_UNKNOWN)


def ledger(observed: Observed, found: Estimate, startup_s: float) -> LedgerSection:
    """``startup_s`` passed before anything was observed; 0 after a reset.

    What the program waited for our own part to be built is of its start-up, too.
    """
    times = observed.times
    wall_s = startup_s + 1e-9 * observed.elapsed_ns
    startup_s += 1e-9 * observed.before.waited_ns
    compile_s, captured_s = 1e-9 * times.main_compile_ns, 1e-9 * times.main_captured_ns
    data_s = 1e-9 * found.data_ns[0]
    left_s = max(0.0, wall_s - startup_s - compile_s - captured_s - data_s)
    eager_s = min(left_s, 1e-9 * found.main_ns.ns)
    spread_s = _spread_s(found, found.main_ns.ns_error)
    status = "exact" if found.exact else "sampled"
    rows = [
        _row("startup", startup_s, wall_s),
        _row("compile", compile_s, wall_s),
        _row("captured", captured_s, wall_s),
        _row("eager_ops", eager_s, wall_s, spread_s, status),
        _row("data", data_s, wall_s),
        _row("python", left_s - eager_s, wall_s, spread_s, status),
    ]
    others = [
        ("compile", 1e-9 * times.other_compile_ns, 0.0, "exact"),
        ("captured", 1e-9 * times.other_captured_ns, 0.0, "exact"),
        (
            "eager_ops",
            1e-9 * found.other_ns.ns,
            _spread_s(found, found.other_ns.ns_error),
            status,
        ),
        ("data", 1e-9 * found.data_ns[1], 0.0, "exact"),
    ]
    rows += [
        LedgerRow(name, "other", seconds, None, spread, known)
        for name, seconds, spread, known in others
        if seconds
    ]
    return LedgerSection(wall_s=wall_s, rows=rows)


def _spread_s(found: Estimate, error_ns: float) -> float:
    return 0.0 if found.exact else SPREAD * 1e-9 * error_ns


def _row(
    name: str, seconds: float, wall_s: float, spread_s: float = 0.0, status: str = "exact"
) -> LedgerRow:
    share = 100 * (seconds / wall_s) if wall_s else None
    return LedgerRow(name, "main", seconds, share, spread_s, status)
