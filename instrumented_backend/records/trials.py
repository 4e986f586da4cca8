"""What trying changes of a program finds, as plain data. ``None`` is unknown."""

from dataclasses import dataclass, field


@dataclass
class SpeedUp:
    """How many times as fast, with a 95 % interval; None of fewer than three pairs of runs."""

    ratio: float
    low: float | None
    high: float | None
    pairs: int


@dataclass
class Agreement:
    """Of what the program prints. ``largest`` is the largest relative difference of a number."""

    kind: str  # "same", "numbers differ", "differs", "varies" (without it, too), "nothing printed"
    largest: float | None = None


@dataclass
class Bound:
    """What the report of the program as it is says that a change can win at most.

    Of the measured steps; for "cold-caches" of the start.
    """

    code: str
    text: str
    where: str | None
    bound_s: float
    bound_pct: float | None
    known: str


@dataclass
class Trial:
    """One change. ``gain_s`` is of one step (or run), ``gain_pct`` of its time."""

    change: str
    line: str
    verdict: str  # "helps", "hurts", "no difference", "unclear", "failed", "not tried", ...
    reason: str | None = None  # of "failed", "not applicable" and "not tried"
    bound: Bound | None = None
    speed_up: SpeedUp | None = None
    step_s: float | None = None
    gain_s: float | None = None
    gain_pct: float | None = None
    compile_s: float | None = None  # with cold caches
    paid_back_after_steps: int | None = None
    peak_memory_bytes: int | None = None
    prints: Agreement | None = None
    notes: list[str] = field(default_factory=list)


@dataclass
class TrialRun:
    """All that was tried of one program. ``unit`` is what a step is, "run" without steps."""

    command: str
    unit: str = "run"
    warmup: int = 0
    steps: int = 0
    device: str = "cpu"
    step_s: float | None = None  # as it is: the median of its runs
    compile_s: float | None = None
    peak_memory_bytes: int | None = None
    runs: int = 0
    took_s: float = 0.0
    interrupted: bool = False
    trials: list[Trial] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
