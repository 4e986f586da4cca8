"""What to do next, and what it can win at most."""

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
    file: str | None = None  # of the same place
    line: int | None = None
