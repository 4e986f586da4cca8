"""What ended graphs, left functions eager, or made Dynamo recompile."""

from dataclasses import dataclass, field

from instrumented_backend.records.notes import RECOMPILE_LIMIT

# Kinds of `BreakRecord`.
BREAK = "break"  # the function was split there
SKIPPED = "skipped"  # because of it whole functions ran eagerly
GAVE_UP = "gave up"  # a function ran eagerly as a whole, for no break


@dataclass
class SkippedRecord:
    """One function that Dynamo left to eager execution as a whole."""

    function: str | None
    file: str | None
    line: int | None  # its first
    reason: str | None = None  # why it could not be split, where that is not the break itself


@dataclass
class BreakRecord:
    """One distinct cause that ended a graph, or that left a whole function to eager execution.

    Eager ops are those that ran because of it: in the functions that were skipped, and between the
    graph before it and the next region. None is "not seen".
    """

    kind: str  # "break": split there; "skipped": whole functions ran eagerly; "gave up": no break
    reason: str
    file: str | None
    line: int | None
    function: str | None
    count: int = 0  # compilations that met it
    source: str | None = None  # the line's text
    hint: str | None = None  # what to do
    called_file: str | None = None  # the user's own line, where the break is in a package
    called_line: int | None = None
    skipped: list[SkippedRecord] = field(default_factory=list)
    graphs_before: list[int] = field(default_factory=list)
    graphs_after: list[int] = field(default_factory=list)
    eager_ops: int | None = None
    eager_time_us: float | None = None
    code: str | None = None  # of the reason, where it has one (`notes`)
    whose: str | None = None  # "torch" or "package", where the cause is in code of theirs
    headline: str | None = None  # Dynamo's name for the reason, the same in every run

    @property
    def is_recompile_limit(self) -> bool:
        return self.code == RECOMPILE_LIMIT


@dataclass
class GuardRecord:
    """One guard that failed, in all recompilations of a function."""

    kind: str  # "shape", "dtype", "int", "grad_mode", ...
    subject: str  # "size of x in dimension 0"
    values: list[str] = field(default_factory=list)  # the first distinct ones, as they came
    more_values: bool = False
    count: int = 0  # recompilations in which it failed
    file: str | None = None  # the user's line that made the guard
    line: int | None = None
    source: str | None = None
    cure: str | None = None
    reason: str | None = None  # torch's own words, the first time
    decided: int = 0  # recompilations that it decided: it met a value that was new to it
    decided_s: float = 0.0  # what these took, those that another guard decided with it too
    cure_for_all: str | None = None  # where several sizes vary, of which `cure` marks one
    is_after_break: bool = False  # the value is from before a graph break


@dataclass
class RecompileRecord:
    """A function that was recompiled; ``compile_id`` and ``reason`` are of the first time."""

    compile_id: str
    function: str | None
    file: str | None
    line: int | None
    reason: str | None
    count: int = 1
    compile_s: float = 0.0  # spent on recompiling it, lazy backwards included
    limit_hits: int = 0  # calls refused because of the recompile limit
    limit_raised: int = 0  # of these, where the program got an exception (fullgraph=True)
    guards: list[GuardRecord] = field(default_factory=list)
    guards_left_out: int = 0  # failures of further guards, not listed
    compiled: int | None = None  # the torch.compile that it was recompiled for, the first time
    decided_s: dict[str, float] = field(default_factory=dict)
    """By kind of guard, what the recompilations took that guards of this kind decided."""
