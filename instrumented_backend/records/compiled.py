"""What became of each ``torch.compile`` that asked for this backend."""

from dataclasses import dataclass, field

# Outcomes.
COMPILED = "compiled"
INLINED = "inlined"  # its code is a part of the graphs of another compiled function
NEVER_CALLED = "never called"
EAGER = "ran eagerly"  # each call
PARTLY_EAGER = "partly eager"  # some calls, for a reason that is known
RAISED = "raised"  # the program got an exception in place of a graph
COMPILING = "compiling"  # no call has run a graph, and one may yet: the report is a snapshot


@dataclass
class CompiledRecord:
    """One ``torch.compile``, and what became of it.

    ``reason`` says why calls ran eagerly. Calls that torch answers without Dynamo, in
    ``torch.export`` and in FX traces, are in none of the figures.
    """

    compiled: int  # its number in the process; graphs refer to it
    call: str  # as it stands in the program, "torch.compile(model)"
    file: str | None
    line: int | None
    target: str  # the module's class, or the function's name
    path: str | None = None  # of a module in its model: "Model.blocks.3"
    outcome: str = COMPILED  # "compiled", "inlined", "never called", "ran eagerly", ...
    calls: int | None = None  # None where one counts as several, and with TORCHDYNAMO_DISABLE=1
    graphs: list[int] = field(default_factory=list)  # that it made
    shared_graphs: list[int] = field(default_factory=list)  # of others, which its calls ran
    graph_calls: int = 0  # of the graphs that it made
    eager_calls: int | None = None  # in which no graph ran; None is unknown
    captured_ops: int | None = None  # in its graphs' calls
    pct_ops: float | None = None  # of all captured ops
    pct_time: float | None = None  # of all time in regions
    limit_hits: int = 0  # calls refused because of the recompile limit
    first_eager_call: int | None = None  # from which on calls may have run eagerly
    reason: str | None = None
    reason_code: str | None = None  # of the reason (`notes`)
    reason_file: str | None = None
    reason_line: int | None = None
    receiver: str | None = None  # "model", where the call is `model.compile()`

    @property
    def name(self) -> str:
        """``"Model.blocks.3"``, or the function's name."""
        return self.path or self.target
