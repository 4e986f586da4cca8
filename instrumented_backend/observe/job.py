"""The job that the process is a rank of, and when it issued its collectives."""

import itertools
import platform
from collections.abc import Sequence

from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.gathering import Gathering
from instrumented_backend.observe.observer import Observer
from instrumented_backend.records import CollectiveGap, Report, RunSection
from instrumented_backend.records.rank_reports import RankReport
from instrumented_backend.records.ranks import Run
from instrumented_backend.torch_compat import distributed, machine

MAX_GAPS = 100


class Job(Observer):
    """Looks at the process group whenever a graph is opened: at the end it may be gone."""

    def __init__(self, failures: Failures, gathers: bool) -> None:
        """``gathers``: does rank 0 collect the reports, since nobody else does?"""
        self._failures = failures
        self._gathers = gathers
        self._group: distributed.Group | None = None
        self._gathering: Gathering | None = None

    def after_fork(self) -> None:
        """A child is a process of the same rank, and says nothing for it."""
        self._gathering = None
        self._gathers = False

    def look(self) -> None:
        group = distributed.group()
        if group is None:
            return
        self._group = group
        if self._gathers and self._gathering is None and group.world_size > 1:
            self._gathering = Gathering(self._failures, group.rank, group.world_size)

    def describe(self, run: RunSection) -> None:
        group = distributed.group() or self._group or distributed.group_of_environment()
        run.rank = machine.rank() if group is None else group.rank
        run.world_size = None if group is None else group.world_size
        run.job = distributed.job_id()
        run.restart = distributed.restarts()
        run.host = platform.node() or None

    def collectives(self) -> list[CollectiveGap]:
        """The longest times between two of them, in the order of the run."""
        return [] if self._group is None else gaps(distributed.collectives())

    def gathered(self, report: Report) -> Run | None:
        """On rank 0, with the reports of all ranks that came in time; elsewhere None."""
        if self._gathering is None:
            return None
        reports = self._gathering.exchange(RankReport.of(report))
        return None if reports is None else Run(report.run.job, reports)


def gaps(issued: Sequence[distributed.Collective]) -> list[CollectiveGap]:
    found = [
        CollectiveGap(
            one.group,
            one.number,
            following.group,
            following.number,
            one.issued_at,
            following.issued_at - one.issued_at,
        )
        for one, following in itertools.pairwise(issued)
    ]
    longest = sorted(found, key=lambda gap: -gap.seconds)[:MAX_GAPS]
    return sorted(longest, key=lambda gap: gap.start_at)
