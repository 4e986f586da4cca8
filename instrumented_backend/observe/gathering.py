"""Reports of all ranks at rank 0, through torch.distributed's own store, within seconds.

A thread does what the store needs, from the first graph on: an ending process cannot start one
(Python 3.12), and the store may answer late or never. The end waits for it as long as `WAIT_S` and
`SEND_S` say, whatever became of the store and of the other ranks.
"""

import logging
import threading
import time
from typing import Any

from instrumented_backend.observe.failures import Failures
from instrumented_backend.records.rank_reports import RankReport
from instrumented_backend.torch_compat import distributed

WAIT_S = 5.0  # rank 0, for the others
SEND_S = 5.0  # each of the others, for the store
_POLL_S = 0.05
_PREFIX = "instrumented_backend"
MAX_BYTES = 4 << 20  # of one rank's; the store takes 8 MB

log = logging.getLogger("instrumented_backend")


class Gathering:
    """One rank's part in it."""

    def __init__(self, failures: Failures, rank: int, world_size: int) -> None:
        self._failures = failures
        self._rank = rank
        self._world_size = world_size
        self._asked = threading.Event()
        self._done = threading.Event()
        self._own = b""
        self._received: dict[int, bytes] = {}
        self._deadline = 0.0
        thread = threading.Thread(target=self._run, name="instrumented-ranks", daemon=True)
        thread.start()

    def exchange(self, report: RankReport) -> list[RankReport] | None:
        """Returns after `WAIT_S` at the latest; None on all ranks but 0."""
        patience = WAIT_S if self._rank == 0 else SEND_S
        self._deadline = time.monotonic() + patience
        self._own = b"" if self._rank == 0 else report.to_bytes()
        self._asked.set()
        self._done.wait(patience)
        if self._rank != 0:
            return None
        received = dict(self._received)  # the thread may still be at work
        others = [RankReport.from_bytes(received[rank]) for rank in sorted(received)]
        return [report, *others]

    def _run(self) -> None:
        with self._failures.guard("the other ranks' reports"):
            try:
                store = distributed.own_store(SEND_S)
                if self._rank != 0:
                    store.set(_key("here", self._rank), "1")
                self._asked.wait()
                if self._rank != 0:
                    self._send(store)
                else:
                    self._receive(store)
            except RuntimeError as error:
                # The store is gone, as it is where rank 0 or the launcher has ended before: what
                # did not come is missing in what rank 0 shows.
                log.debug("ranks: %s", error)
        self._done.set()

    def _send(self, store: Any) -> None:
        if len(self._own) <= MAX_BYTES:
            store.set(_key("report", self._rank), self._own)

    def _receive(self, store: Any) -> None:
        """Wait for the reports of all ranks that have compiled anything, and keep them."""
        expected = {
            rank for rank in range(1, self._world_size) if store.check([_key("here", rank)])
        }
        while expected and time.monotonic() < self._deadline:
            for rank in sorted(expected):
                if store.check([_key("report", rank)]):
                    self._received[rank] = store.get(_key("report", rank))
                    expected.discard(rank)
            if expected:
                time.sleep(_POLL_S)


def _key(what: str, rank: int) -> str:
    return f"{_PREFIX}/{what}/{rank}"
