"""What to do next, what it can win at most, and what a trial of it has won."""

from dataclasses import dataclass, field


@dataclass
class NextStep:
    """One change, and what it can win at most.

    ``known`` says how far the bound is: "exact", "sampled", or "trial": only a trial can tell how
    much of it is won, if anything is. ``seen_s`` is what the report books on the cause itself; the
    rest of ``bound_s`` may come with it and may not.
    """

    code: str  # "break", "optimizer", "recompile", ...
    text: str
    where: str | None  # "/home/me/train.py:13"
    bound_s: float
    bound_pct: float | None  # of the wall time
    known: str
    seen_s: float = 0.0
    parts_s: dict[str, float] = field(default_factory=dict)  # what the bound is the sum of


@dataclass
class TrialRecord:
    """A change that was tried: the bound that was told, and the gain that was measured."""

    code: str  # of the step
    change: str  # what was changed, in words
    where: str | None
    bound_s: float | None  # as told before
    bound_pct: float | None
    gain_s: float | None = None  # of the wall time of the run as it was; None: not measured
    gain_spread_s: float | None = None  # to either side, two standard errors
    gain_pct: float | None = None
    runs: int = 0  # of each of both
    note: str | None = None  # why nothing was measured

    @property
    def within_bound(self) -> bool | None:
        """None where either is unknown; a gain within its spread of the bound is within it."""
        if self.gain_s is None or self.bound_s is None:
            return None
        return self.gain_s - (self.gain_spread_s or 0.0) <= self.bound_s
