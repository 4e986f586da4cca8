"""The report's file while the program runs: what is in it, and whether that has changed."""

import importlib
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from instrumented_backend.observe.compile.outcomes import is_worth_a_report
from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.graphs.graph import ObservedGraph
from instrumented_backend.observe.kept import Kept
from instrumented_backend.observe.ops.meter import OpMeter
from instrumented_backend.observe.ops.observed import Observed
from instrumented_backend.observe.pacer import Pacer
from instrumented_backend.observe.snapshots import (
    ESTIMATE_SHARE,
    LISTING_SHARE,
    Budget,
    Busy,
    Snapshots,
)
from instrumented_backend.records import Report, notes

LONG_GAP_S = 1.0  # between marks: a snapshot looks into what the program runs since then


class Saver(Protocol):
    """Keeps a report's file current while the program runs."""

    def save(self, report: Report, go_on: Callable[[], None]) -> list[str]:
        """Write it; returns what could not be written and why. ``go_on`` is called before each
        step, and raises where the program ends."""

    def discard(self) -> None:
        """The process has nothing to report after all."""


class LiveFile:
    """``snapshots`` is its observer; without a ``saver`` it does nothing."""

    def __init__(
        self,
        saver: Saver | None,
        ops: OpMeter,
        failures: Failures,
        graphs: Callable[[], Sequence[ObservedGraph]],
        compilations: Callable[[], tuple[Hashable, ...]],
        assemble: Callable[[Observed | None, Kept], Report],
    ) -> None:
        """``compilations`` differs where one has begun or ended since."""
        self._saver = saver
        self._ops = ops
        self._failures = failures
        self._graphs = graphs
        self._compilations = compilations
        self._assemble = assemble
        self._busy = Busy()
        self.reset()
        self.snapshots = Snapshots(self._save, self._change, failures)
        self.snapshots.wanted = saver is not None
        if saver is not None:
            # Not on the thread that takes snapshots: the child of a fork meanwhile could never
            # import it, and pytest parses what is imported.
            importlib.import_module("instrumented_backend.records.encoding")

    def reset(self) -> None:
        """Nothing that was kept is of the time from now on."""
        self._kept = Kept()
        self._listings, self._estimates = Budget(LISTING_SHARE), Budget(ESTIMATE_SHARE)

    def discard(self) -> None:
        if self._saver is not None:
            self._saver.discard()

    def _change(self) -> Hashable:
        """Differs from an earlier one where a report would."""
        graphs = self._graphs()
        seen = self._ops.change()
        if seen is None:
            seen = (sum(graph.calls.value + graph.backward_calls.value for graph in graphs),)
        # What is neither compiled nor in ops is the program's Python.
        return *seen, len(graphs), *self._compilations(), self._busy.turns()

    def _save(self) -> bool:
        """Whether it is where it belongs."""
        assert self._saver is not None
        report = self._report()
        if not has_content(report) and not report.compiling:
            return True
        lost = self._saver.save(report, self.snapshots.go_on)
        for text in lost:
            self._failures.say(notes.LOST, text)
        return not lost

    def _report(self) -> Report:
        """A report that waits for nothing, changes nothing, and costs little."""
        pacer = Pacer()

        def pause() -> None:
            self.snapshots.go_on()
            pacer.pause()

        with self._failures.guard("captured ops"):
            self._ops.count_graphs(0.0, pause)
        kept, listings, estimates = self._kept, self._listings, self._estimates
        kept.listed = listings.allows()
        kept.estimated = kept.listed or estimates.allows() or self.snapshots.asked
        start_s = time.thread_time()
        observed = None
        with self._failures.guard("ops"):
            observed = self._ops.read(kept.listed, LONG_GAP_S, with_gaps=kept.estimated)
        report = self._assemble(observed, kept)
        spent_s = time.thread_time() - start_s
        if kept.listed:
            listings.spent(spent_s)
            self.snapshots.apart(spent_s)
        elif kept.estimated:
            estimates.spent(spent_s)
        return report


def has_content(report: Report) -> bool:
    """Is there anything to tell?"""
    return bool(report.graphs or report.breaks or is_worth_a_report(report.compiled))
