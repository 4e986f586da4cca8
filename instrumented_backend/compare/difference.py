"""What `compare` finds, as plain data: views draw it, and JSON has all of it."""

from dataclasses import dataclass, field

# How sure a change is.
EXACT, SAMPLED, ESTIMATED = "exact", "sampled", "estimated"

NEW, GONE, MORE, FEWER, CHANGED = "new", "gone", "more", "fewer", "changed"


@dataclass
class Change:
    """One thing that is not as it was; ``worse`` is None where that is not for us to say.

    ``before`` and ``after`` are counts. ``cost_s`` is what it takes in the second report (in the
    first one where it is gone), with ``cost_of`` for what that time is; None is unknown.
    """

    kind: str
    what: str  # "new", "gone", "more", "fewer", "changed"
    text: str
    worse: bool | None
    before: float | None = None
    after: float | None = None
    known: str = EXACT
    function: str | None = None
    file: str | None = None
    line: int | None = None
    source: str | None = None
    cause: str | None = None
    cure: str | None = None
    cost_s: float | None = None
    cost_of: str | None = None
    details: list[str] = field(default_factory=list)
    follows: list[str] = field(default_factory=list)  # what came with it


@dataclass
class FigureChange:
    """One figure of both reports. ``changed`` is None where one run each cannot tell."""

    figure: str
    unit: str
    before: float | None
    after: float | None
    before_spread: float
    after_spread: float
    known: str  # the less certain of both
    changed: bool | None
    worse: bool | None
    note: str | None = None


@dataclass
class TimeChange:
    """Seconds of one run each: another run would have others, so none is called changed.

    The spreads are those of sampling, not from run to run.
    """

    what: str  # "compiling", "compiling, dynamo", "wall time, python"
    before_s: float | None
    after_s: float | None
    before_spread_s: float = 0.0
    after_spread_s: float = 0.0


@dataclass
class Surroundings:
    """What the program ran in, or with, where the two differ."""

    what: str
    before: str | None
    after: str | None


@dataclass
class MatchedGraph:
    """A graph that is in both reports, by its number and compile id in each."""

    before: int | None
    after: int | None
    before_id: str
    after_id: str
    function: str | None
    by: str
    before_ops: int | None
    after_ops: int | None
    before_kernels: int | None
    after_kernels: int | None


@dataclass
class Comparison:
    """All of it; the costliest change first."""

    before: str  # names of the reports
    after: str
    surroundings: list[Surroundings] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    figures: list[FigureChange] = field(default_factory=list)
    times: list[TimeChange] = field(default_factory=list)
    graphs: list[MatchedGraph] = field(default_factory=list)

    @property
    def worse(self) -> list[Change]:
        return [change for change in self.changes if change.worse]
