"""The program's own lines: what was captured of each, ran eagerly on it, went wrong there."""

from dataclasses import dataclass, field


@dataclass
class LineRecord:
    """One line of the program; ``file`` is None for what is on no line that is known.

    Over all of them, ops, breaks and recompiles add up to the summary's, and time to that in eager
    ops. Captured ops are those of the graphs' calls, at the line that each was captured from; so
    are those of the backward. Lines of eager ops are found by samples: their figures are as exact
    as those of `MissingRecord`. ``None`` is unknown.
    """

    file: str | None
    line: int | None
    function: str | None = None
    captured_ops: int | None = None
    forward_ops: int | None = None
    backward_ops: int | None = None
    called: dict[str, int] = field(default_factory=dict)  # in the graphs: function → nodes
    graphs: list[int] = field(default_factory=list)  # with ops of this line
    eager_ops: int | None = None
    eager_ops_spread: float | None = None  # to either side, two standard errors
    eager_time_us: float | None = None
    breaks: list[int] = field(default_factory=list)  # places in the report's `breaks`
    recompiles: int = 0  # of the function that begins here
    recompile_s: float = 0.0  # what those took
    guards: list[int] = field(default_factory=list)  # places in `recompiles`: its guard is here
    kernels: list[int] = field(default_factory=list)  # places in `kernels`: made from this line
    device_time_us: float | None = None  # estimated: an equal part of each kernel's time
    eager_gpu_us: float | None = None  # of the GPU's timeline, in eager ops; sampled


@dataclass
class FileRecord:
    """A file that the lines are in.

    ``sha256`` is of its text as the program ran it, so that later changes of the file are noticed;
    None where there is no text, or where the file was ``changed`` while the program ran.
    A cell of a notebook is ``"In [3]"``; its text was kept under the name ``text_in``.
    """

    file: str
    sha256: str | None = None
    text_in: str | None = None
    changed: bool = False
