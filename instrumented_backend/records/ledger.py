"""Where the wall time of the process went."""

from dataclasses import dataclass, field


@dataclass
class LedgerRow:
    """One kind of time, on the main thread or on all others together.

    ``row`` is "startup" (process start to the first `torch.compile`, and waiting for the op meter
    to be built), "compile", "captured" (in regions), "eager_ops", "data" (in DataLoaders'
    ``next``) or "python" (the rest). Those of the main thread exclude each other and add up to
    the wall time; those of other threads are thread-seconds. ``share_pct`` is of the wall time,
    None for other threads. ``spread_s`` is to either side, two standard errors; 0 is exact.
    """

    row: str
    threads: str  # "main" or "other"
    seconds: float | None
    share_pct: float | None
    spread_s: float | None
    status: str  # "exact", "sampled" or "unknown"


@dataclass
class LedgerSection:
    """The rows of the main thread, which add up to ``wall_s``, and then those of the others."""

    wall_s: float | None = None  # since the process started
    rows: list[LedgerRow] = field(default_factory=list)
    note: str | None = None  # why something is unknown
    note_code: str | None = None

    def seconds(self, row: str, threads: str = "main") -> float | None:
        """Of the row of that name; None where it is unknown or there is none."""
        for known in self.rows:
            if (known.row, known.threads) == (row, threads):
                return known.seconds
        return None

    def share_pct(self, row: LedgerRow) -> float | None:
        """Of the wall time; thread-seconds of other threads may be more than all of it."""
        if row.share_pct is not None:
            return row.share_pct
        return self._pct_of_wall(row.seconds)

    @property
    def largest_spread_pct(self) -> float | None:
        """Of the main thread's rows, in points of the wall time; None where none is sampled."""
        spreads = (self._pct_of_wall(r.spread_s) for r in self.rows if r.threads == "main")
        return max(filter(None, spreads), default=None)

    def _pct_of_wall(self, seconds: float | None) -> float | None:
        return 100 * seconds / self.wall_s if self.wall_s and seconds is not None else None
