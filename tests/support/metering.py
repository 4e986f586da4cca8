"""The op meter's native part in a test: regions, threads with a name, and what was seen."""

import ctypes
import os
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from waiting import wait_until

from instrumented_backend.observe.native import structs
from instrumented_backend.observe.ops.observed import Copied, Kind, Mark, Observed, Part

CERTAIN, RANDOM = range(2)
FIRST_GAP = 4  # as `part` of a cell
HOUR_NS = 3600 * 10**9
LEAD_NS = 400_000  # that a window leaves out of a gap under way
LEAD_S = 1e-9 * LEAD_NS
_PR_SET_NAME = 15


def call(lib: Any, key: int, body: Callable[[], object] = lambda: None) -> None:
    """One call of a graph's direction."""
    lib.op_meter_enter(key)
    body()
    lib.op_meter_leave(key)


def seen(lib: Any) -> Observed:
    """All of it. Gaps that are under way end here."""
    return Copied.of(lib).observed([], whole=False, elapsed_ns=0)


def place(mark: Mark) -> tuple[Any, ...]:
    """Where a gap begins, in short: the region's key, then the event and "data" if there are."""
    return (mark.region, *filter(None, [mark.event, "data" if mark.in_data else None]))


def gaps(observed: Observed) -> Counter[tuple[tuple[Any, ...], int]]:
    """How many there were: by where they began, and which mark ended them."""
    found: Counter[tuple[tuple[Any, ...], int]] = Counter()
    for kind in observed.kinds:
        found[place(observed.marks[kind.mark]), kind.to] += sum(kind.n)
    return found


def kinds_after(observed: Observed, region: int, to: int | None = None) -> list[Kind]:
    """Of gaps that began right after the region's call; all lengths."""
    return [
        kind
        for kind in observed.kinds
        if place(observed.marks[kind.mark]) == (region,) and to in (None, kind.to)
    ]


def whole_after(observed: Observed, region: int, chosen: int = CERTAIN) -> tuple[int, int]:
    """How many of these were seen whole, with how many ops."""
    parts = [
        part.seen
        for kind in kinds_after(observed, region)
        for part in (kind.whole[chosen], *([kind.first] if chosen == CERTAIN else []))
    ]
    return int(sum(part.n for part in parts)), int(sum(part.ops for part in parts))


def names(*parts: Part) -> Counter[str]:
    """The ops in them."""
    found: Counter[str] = Counter()
    for part in parts:
        for cell in part.cells:
            found[cell.name] += cell.count
    return found


def main_ns(observed: Observed) -> int:
    """All that the main thread's time went to."""
    in_gaps = sum(kind.ns[0] for kind in observed.kinds)
    return in_gaps + observed.times.main_captured_ns + observed.times.main_compile_ns


def on_thread(body: Callable[[], object], name: bytes | None = None) -> None:
    """Run it on a new thread to its end. ``name`` is what the system knows the thread by."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            if name is not None:
                ctypes.CDLL(None).prctl(_PR_SET_NAME, name, 0, 0, 0)
            body()
        except BaseException as error:  # whatever it is, it is the test's: raised below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    finish(thread)
    if failed:
        raise failed[0]


def finish(thread: threading.Thread) -> None:
    """Until the system's thread has gone, too, which the native part sees."""
    thread.join()
    wait_until(lambda: not os.path.exists(f"/proc/self/task/{thread.native_id}"))


def later(body: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=body)
    thread.start()
    return thread


def end_window(lib: Any) -> threading.Thread:
    """It ends; what has begun in it may go on, for which a thread waits."""
    window, awake = lib.op_meter_end(), lib.op_meter_awake()
    return later(lambda: lib.op_meter_finish(window, HOUR_NS, awake))


def window_by_chance(
    lib: Any,
    length_ns: int,
    longest_ns: int,
    awake: int | None = None,
    wait_ns: int = 0,
    times: int = 0,
) -> None:
    """The next one, and no looks at what the program runs before it opens. The last one stands for
    that length so many times; 0: it is not known."""
    awake = lib.op_meter_awake() if awake is None else awake
    lib.op_meter_window(wait_ns, length_ns, times * length_ns, longest_ns, HOUR_NS, 0, awake)


def open_ns(lib: Any, chosen: int) -> float:
    """How long windows of that set have been open; does not end the gaps that are under way."""
    row = structs.TimeRow()
    lib.op_meter_times(row)
    return float(row.loose[chosen].ns)
