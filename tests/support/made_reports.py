"""Reports put together from what a test is about; all the rest of them is empty."""

from instrumented_backend.records import (
    BreakRecord,
    CachesSection,
    CacheStates,
    CapturedRecord,
    CompiledRecord,
    CompileSection,
    CountersSection,
    EagerOpRecord,
    GraphRecord,
    GuardRecord,
    KernelRecord,
    MissingRecord,
    OpsRecord,
    RecompileRecord,
    Report,
    RunSection,
    SkippedRecord,
    SummarySection,
)

FILE = "/home/me/model.py"


def graph(
    number: int = 0, function: str = "f", line: int = 10, ops: int = 6, **more
) -> GraphRecord:
    more = {"compile_id": f"{number}/0", "cache": "miss", "calls": 3, "forward_ops": ops, **more}
    return GraphRecord(graph=number, function=function, file=FILE, line=line, ops=ops, **more)


def kernel(of: int, *ops: str, name: str = "", lines: tuple[int, ...] = (), **more) -> KernelRecord:
    """A generated one; an extern call with ``language="extern"``."""
    short = "_".join(ops)
    more = {"language": "cpp", "direction": "forward", "calls": 1, "total_bytes": 64, **more}
    return KernelRecord(
        kernel_name=name or f"cpp_fused_{short}_0",
        graph=of,
        aten_ops=[f"aten.{op}" for op in ops],
        source_lines=[f"{FILE}:{line}" for line in lines],
        **more,
    )


def graph_break(line: int = 14, function: str = "f", **more) -> BreakRecord:
    more = {
        "kind": "break",
        "reason": "Failed to trace builtin operator: `print` is not known",
        "source": 'print("hello")',
        "count": 1,
        "hint": "Avoid calling it.",
        "eager_ops": 2,
        "eager_time_us": 20.0,
        **more,
    }
    headline = more["reason"].partition(": ")[0]
    return BreakRecord(file=FILE, line=line, function=function, **{"headline": headline, **more})


def skipped(function: str = "loop", line: int = 20) -> BreakRecord:
    return graph_break(
        line + 2, function, kind="skipped", skipped=[SkippedRecord(function, FILE, line)]
    )


def recompile(function: str = "f", line: int = 10, count: int = 1, **more) -> RecompileRecord:
    guard = GuardRecord("shape", "size of x in dimension 0", ["8", "9"], count=count, cure="pad")
    more = {"compile_s": 2.0, "guards": [guard], **more}
    return RecompileRecord("0/1", function, FILE, line, "why", count, **more)


def eager(op: str = "aten::add_", line: int = 30, function: str = "step", count: int = 5, **more):
    more = {"time_us": 10.0 * count, "share_pct": 50.0, **more}
    return MissingRecord(op, FILE, line, function, count, **more)


def report(
    *records: object,
    captured: int = 60,
    total: int | None = None,
    status: str = "exact",
    spread: float = 0.0,
    command: str = "train.py --epochs 1",
    program: str | None = None,
    torch: str = "2.15.0",
    rank: int = 0,
    warm: bool = False,
    compile_s: float = 5.0,
) -> Report:
    """The records go where they belong; eager ops are the rest of the ops."""

    def of(kind: type) -> list:
        return [record for record in records if isinstance(record, kind)]

    graphs, breaks, recompiles = of(GraphRecord), of(BreakRecord), of(RecompileRecord)
    missing = of(MissingRecord)
    if total is None:
        total = captured + sum(record.count for record in missing)
    for one in graphs:
        if warm:
            one.cache = "hit"
    states = [one.cache for one in graphs]
    return Report(
        run=RunSection(
            *(torch, "cpu", rank, 17 + rank),
            command=command,
            program=program or command.partition(" ")[0],
            wall_s=10.0,
        ),
        summary=SummarySection(
            graphs=len(graphs),
            graph_calls=sum(one.calls for one in graphs),
            backward_calls=0,
            graph_breaks=sum(one.kind != "gave up" for one in breaks),
            skipped_functions=sum(len(one.skipped) for one in breaks),
            recompiles=sum(one.count for one in recompiles),
            graph_ops=sum(one.ops or 0 for one in graphs),
            captured_ops=captured,
            total_ops=total,
            pct_ops=100 * captured / total if total else None,
            pct_time=90.0,
        ),
        graphs=graphs,
        kernels=of(KernelRecord),
        ops=OpsRecord(
            status=status,
            observed_pct=100.0 if status == "exact" else 20.0,
            captured=CapturedRecord(captured, time_us=900.0),
            total_ops=total,
            total_time_us=1000.0,
            pct_ops_spread=spread,
            pct_time_spread=spread,
            eager=[EagerOpRecord(one.op, one.count, one.time_us, 50.0) for one in missing],
            missing=missing,
            note=None,
        ),
        breaks=breaks,
        recompiles=recompiles,
        caches=CachesSection(
            CacheStates(states.count("hit"), states.count("miss"), states.count("bypass"), 0),
            {},
        ),
        counters=CountersSection({}, {}, {}, {}),
        compile=CompileSection(compile_s, {"dynamo_s": compile_s}, []),
        notes=[],
        compiled=of(CompiledRecord),
    )
