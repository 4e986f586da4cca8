"""What ran between the marks of the program's course: calls of graphs, optimizer steps, loading."""

from dataclasses import dataclass, field

_OPTIMIZER_STEP = "Optimizer.step#"


@dataclass
class GapLineRecord:
    """Eager ops on one of the user's lines in one kind of gap; which line is found by samples."""

    file: str | None
    line: int | None
    function: str | None
    op: str  # the one that took the most time there
    time_us: float


@dataclass
class GapRecord:
    """All gaps from one mark to another, on the main thread.

    A gap begins at the end of a graph's call, or at what has happened since: ``event`` is the name
    that PyTorch gives it (`Optimizer.step#AdamW.step`), or `exit`, where the program is over, and
    ``inside`` says that it had begun and not ended. It ends at the next mark. How many there were
    and how long they took is exact; compiling is no part of it.
    """

    graph: int | None  # whose call came last; None: before any
    backward: bool
    event: str | None
    inside: bool
    in_data: bool  # a DataLoader was at work
    to_graph: int | None
    to_backward: bool
    to_event: str | None
    count: int
    time_us: float
    eager_time_us: float  # of it, in eager ops; at most all of it
    lines: list[GapLineRecord] = field(default_factory=list)  # of those, the costliest first

    @property
    def optimizer(self) -> str | None:
        """``"AdamW"``, of a gap inside its step."""
        event = self.event or ""
        if not self.inside or not event.startswith(_OPTIMIZER_STEP):
            return None
        return event.removeprefix(_OPTIMIZER_STEP).partition(".")[0]

    @property
    def python_us(self) -> float:
        """The rest of it."""
        return max(0.0, self.time_us - self.eager_time_us)
