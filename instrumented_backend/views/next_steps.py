"""What to do next: each change with what it can win at most, out of the report alone.

A bound is what the cause takes in the report, and all that may go with it: where a report cannot
tell one thing's time from another's, the bound has both. `seen_s` is what is booked on the cause
itself. It decides what is worth saying, and the order.
"""

import heapq
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from instrumented_backend.records import (
    LAUNCH_BOUND,
    BreakRecord,
    GapRecord,
    GuardRecord,
    NextStep,
    RecompileRecord,
    Report,
    notes,
)
from instrumented_backend.records.compiled import EAGER, PARTLY_EAGER
from instrumented_backend.units import percent, seconds
from instrumented_backend.views.not_compiled import CURES
from instrumented_backend.views.run_costs import Run
from instrumented_backend.views.words import count, function_words

WORTH_PCT = 1.0  # of the wall time
WORTH_PCT_ELSEWHERE = 5.0  # of what no compiler helps: some of it is in each program
CALLING_US = 50.0  # of Python in one gap: a call of compiled code looks through its guards
OFTEN = 3  # what a program did less often is no part of its loop
MAX_CAUSES = 200  # breaks, and functions that were recompiled, that are looked at
MAX_GAPS = 10_000
FAR_FROM_PEAK_PCT = 50.0
MEMORY_BOUND = 8.0  # floating-point operations for each byte, at most
LARGE_COMPILE_PCT = 20.0  # of the wall time
LARGE_GRAPH = 100  # ops; with fewer a model repeats no block that is worth compiling alone
TRIAL = "trial"
TRIAL_TELLS = "only a trial tells: "
# Guards that a program can keep from failing and still do what it does. Others have a graph for
# each value, as is usual.
_CURABLE = frozenset(
    {"shape", "specialized", "int", "float", "stride", "global", "attribute", "keys", "length"}
    | {"identity", "autocast", "num_threads", "deterministic_algorithms", "default_dtype"}
)

Record = TypeVar("Record")
_FUSED = "aten::_fused_"
_ACCUMULATE = "torch::autograd::AccumulateGrad"
_CAN_BE_FUSED = frozenset({"Adam", "AdamW", "SGD", "Adagrad"})


class Where(NamedTuple):
    """The program's line that a step is about."""

    file: str
    line: int | None


def next_steps(report: Report) -> list[NextStep]:
    """Largest seen cost first; what only a trial can tell comes last; nothing under 1 %."""
    run = Run(report)
    if not run.wall_s:
        return []
    steps = [step for find in _FINDERS for step in find(run)]
    least_s = WORTH_PCT / 100 * run.wall_s
    for step in steps:
        step.bound_s = min(step.bound_s, run.wall_s)
        step.seen_s = min(step.seen_s, step.bound_s)
        step.bound_pct = 100 * step.bound_s / run.wall_s
        if step.seen_s < least_s:
            step.known = TRIAL
    worth = [step for step in steps if step.bound_s >= least_s]
    return sorted(worth, key=lambda step: (step.known == TRIAL, -step.seen_s, -step.bound_s))


def at_most(step: NextStep) -> str:
    """``"at most 3.1 s (24 %)"``"""
    return f"at most {seconds(step.bound_s)} ({percent(step.bound_pct)} of the run)"


def _step(
    code: str,
    text: str,
    where: Where | None,
    known: str,
    seen: dict[str, float],
    besides: dict[str, float] | None = None,
) -> NextStep:
    """``besides``: what may go with the cause and may not."""
    parts = {**seen}
    for name, took in (besides or {}).items():
        parts[name] = parts.get(name, 0.0) + took
    parts = {name: took for name, took in parts.items() if took}
    bound_s = sum(parts.values())
    step = NextStep(code, text, None, bound_s, None, known, sum(seen.values()), parts)
    if where is not None:
        step.file, step.line = where.file, where.line
        step.where = f"{where.file}:{where.line}"
    return step


def _costliest(records: list[Record], cost: Callable[[Record], float]) -> list[Record]:
    """All of them, in their order, unless there are very many: each looks through all gaps."""
    return records if len(records) <= MAX_CAUSES else heapq.nlargest(MAX_CAUSES, records, cost)


def _where(file: str | None, line: int | None) -> Where | None:
    return None if file is None else Where(file, line)


# --- What is not compiled ------------------------------------------------------------------------


def _not_compiled(run: Run) -> list[NextStep]:
    """Calls that ran eagerly from the start, where it was no graph break: these have their own."""
    known = {notes.GRAPH_BREAK, notes.RECOMPILE_LIMIT}
    for record in run.report.compiled:
        cure = CURES.get(record.reason_code or "")
        if (
            record.outcome in (EAGER, PARTLY_EAGER)
            and cure is not None
            and record.reason_code not in known
        ):
            text = f"{record.call} ran eagerly: {cure}"
            eager = {"eager ops": run.row_s("eager_ops")}
            # Where graphs ran, too, eager ops may be of anything else.
            seen = {} if run.report.graphs else eager
            besides = {"Python": run.row_s("python"), **(eager if run.report.graphs else {})}
            where = _where(record.file, record.line)
            return [_step("not-compiled", text, where, run.eager_known, seen, besides)]
    return []


def _breaks(run: Run) -> list[NextStep]:
    """Breaks in code of the user's, and whole functions that ran eagerly."""
    return [
        _of_break(run, record)
        for record in _costliest(run.report.breaks, lambda one: one.eager_time_us or 0.0)
        if record.file is not None and record.whose is None and not record.is_recompile_limit
    ]


def _of_break(run: Run, record: BreakRecord) -> NextStep:
    before, after = set(record.graphs_before), set(record.graphs_after)
    between = run.gaps(
        lambda gap: (
            (gap.graph in before and not gap.backward)
            and (gap.to_graph in after and not gap.to_backward)
        )
    )
    run.claim(between)
    booked_s = (record.eager_time_us or 0.0) / 1e6
    eager_s = run.eager_s(between)
    if not (eager_s and run.is_gpu_bound):
        eager_s = max(booked_s, eager_s)
    seen = {"eager ops": eager_s, "Python": run.python_s(between)}
    # One graph instead of two may be faster, and be compiled faster.
    besides = {"fusing": run.graphs_s(before | after), "compiling": run.compiling_s(after)}
    if record.skipped:
        besides["Python"] = run.python_s(run.gaps(lambda gap: True))
        run.claim(run.gaps(lambda gap: _is_of_function(gap, record)))
    elif not after:
        ends = run.gaps(lambda gap: gap.graph in before and not gap.backward and not gap.event)
        besides["Python"] = run.python_s(ends)
    what = record.hint or f"take the cause out of the compiled function: {record.reason}"
    function = f" in {record.function}" if record.function else ""
    text = f"graph break{function}: {what.rstrip('.')}"
    return _step("break", text, _where(record.file, record.line), run.eager_known, seen, besides)


def _is_of_function(gap: GapRecord, record: BreakRecord) -> bool:
    """Did most of a gap's eager ops run in a function that the break left eager?"""
    if not gap.lines:
        return False
    line = gap.lines[0]
    name = (line.function or "").rpartition(".")[2]
    return any((line.file, name) == (one.file, one.function) for one in record.skipped)


def _optimizer(run: Run) -> list[NextStep]:
    steps = []
    fused_lines = {(op.file, op.line) for op in run.report.ops.missing if op.op.startswith(_FUSED)}
    by_optimizer: dict[str, list[GapRecord]] = {}
    for gap in run.gaps(lambda gap: gap.optimizer is not None):
        by_optimizer.setdefault(gap.optimizer or "the optimizer", []).append(gap)
    for kind, gaps in by_optimizer.items():
        run.claim(gaps)
        lines = [line for gap in gaps for line in gap.lines]
        is_fused = any(
            line.op.startswith(_FUSED) or (line.file, line.line) in fused_lines
            for line in lines[:1]
        )
        if is_fused or sum(gap.count for gap in gaps) < OFTEN:
            continue
        step = "torch.compile(optimizer.step), with lr=torch.tensor(...) where a scheduler sets it"
        fused = f"{kind}(..., fused=True), or " if kind in _CAN_BE_FUSED else ""
        text = f"{kind} runs op by op: {fused}{step}"
        where = _where(lines[0].file, lines[0].line) if lines else None
        seen = {
            "eager ops": run.eager_s(gaps),
            "Python": run.python_s(gaps),
        }
        steps.append(_step("optimizer", text, where, run.eager_known, seen))
    return steps


def _eager(run: Run) -> list[NextStep]:
    """Eager ops of the program's loop, by the line that most of a gap's are on.

    What autograd itself does at the end of a backward is on no line that could be compiled.
    """
    by_line: dict[tuple[Where, bool], list[GapRecord]] = {}
    for gap in run.gaps(lambda gap: gap.count >= OFTEN and bool(gap.lines)):
        first = gap.lines[0]
        where = _where(first.file, first.line)
        if where is not None and first.op != _ACCUMULATE:
            is_loss = gap.to_backward and not gap.backward
            by_line.setdefault((where, is_loss), []).append(gap)
    steps = []
    for (where, is_loss), gaps in by_line.items():
        seen_s = run.eager_s(gaps)
        if seen_s < WORTH_PCT / 100 * run.wall_s:
            continue
        run.claim(gaps)
        ops = ", ".join(dict.fromkeys(line.op for gap in gaps for line in gap.lines[:1]))
        besides = {"Python": run.python_s(gaps)}
        if is_loss:
            code, text = "loss", f"compute the loss in the compiled function ({ops})"
            numbers = {n for gap in gaps for n in (gap.graph, gap.to_graph) if n is not None}
            besides["fusing"] = run.graphs_s(numbers)
        else:
            code, text = "eager", f"put what this line does into a compiled function ({ops})"
        steps.append(_step(code, text, where, run.eager_known, {"eager ops": seen_s}, besides))
    return steps


# --- Compiling -----------------------------------------------------------------------------------


def _recompiles(run: Run) -> list[NextStep]:
    steps = []
    for record in _costliest(run.report.recompiles, lambda one: one.compile_s):
        curable = [guard for guard in record.guards if guard.cure and guard.kind in _CURABLE]
        deciding = [guard for guard in curable if guard.decided_s]
        if not deciding:
            continue
        kinds = {guard.kind for guard in deciding}
        took_s = min(record.compile_s, sum(record.decided_s.get(kind, 0.0) for kind in kinds))
        seen, besides = {"recompiling": took_s}, {}
        if record.limit_hits:
            seen["eager ops"] = _at_limit_s(run.report, record)
            besides["Python"] = run.python_s(run.gaps(lambda gap: True))
        else:
            besides["Python"] = run.looking_up_s(record)
            besides["first calls"] = run.first_calls_s(record)
        if "shape" in kinds and record.count:
            # Of the compilations one is left, for all sizes; the first may be the longer one.
            besides["compiling"] = max(0.0, run.first_compiling_s(record) - took_s / record.count)
        worst = max(deciding, key=lambda guard: guard.decided_s)
        text = _cure_of(run, record, worst, sum(guard.kind == "shape" for guard in deciding) > 1)
        where = _where(*run.names.place(record.compiled, record.function, record.file, record.line))
        steps.append(_step("recompile", text, where, "exact", seen, besides))
    return steps


def _cure_of(run: Run, record: RecompileRecord, guard: GuardRecord, sizes_vary: bool) -> str:
    function = function_words(run.names.function(record.compiled, record.function))
    cure = guard.cure or ""
    if sizes_vary:  # to mark one of them is not enough
        cure = guard.cure_for_all or cure
    elif guard.is_after_break:
        place = record.file, record.line
        hint = next((one.hint for one in run.report.breaks if (one.file, one.line) == place), None)
        cure = f"mend the graph break there: {hint.rstrip('.')}" if hint else cure
    return f"{function} recompiled for {guard.subject}: {cure}"


def _at_limit_s(report: Report, record: RecompileRecord) -> float:
    """Seconds of a function that ran eagerly because it had been recompiled too often."""
    ran_us = (
        one.eager_time_us or 0.0
        for one in report.breaks
        if one.is_recompile_limit and one.function == record.function
    )
    return sum(ran_us) / 1e6


def _cold_caches(run: Run) -> list[NextStep]:
    """All but Dynamo's part of what no cache had: Dynamo traces each time."""
    missed = {graph.graph for graph in run.report.graphs if graph.cache == "miss"}
    took_s = sum(
        seconds_ or 0.0
        for record in run.report.compile.compilations
        if missed.intersection(record.graphs)
        for phase, seconds_ in record.phases_s.items()
        if phase != "dynamo_s"
    )
    if not took_s:
        return []
    # What a recompilation takes is spared by its cure, with warm caches and without.
    recompiling_s = min(
        took_s, sum(step.parts_s.get("recompiling", 0.0) for step in _recompiles(run))
    )
    text = (
        f"keep TORCHINDUCTOR_CACHE_DIR between runs: the next one finds "
        f"{count(len(missed), 'graph')} there"
    )
    seen, besides = {"compiling": took_s - recompiling_s}, {"compiling": recompiling_s}
    return [_step("cold-caches", text, None, "exact", seen, besides)]


# --- What no compiler helps ----------------------------------------------------------------------


def _data(run: Run) -> list[NextStep]:
    text = "data loading, which no compiler helps: more num_workers, or less work for each item"
    took_s = run.row_s("data")
    if run.is_gpu_bound:  # what it has left to do meanwhile is no wait
        took_s = min(took_s, run.gpu_idle_s)
    return _elsewhere(run, _step("data", text, None, "exact", {"data": took_s}))


def _python(run: Run) -> list[NextStep]:
    """The last finder: what no other step has claimed, and no call takes by itself."""
    gaps = run.gaps(lambda gap: gap.python_us > CALLING_US * gap.count)
    took_s = min(run.row_s("python"), sum(gap.python_us for gap in gaps) / 1e6)
    if run.is_gpu_bound:  # most of it is waiting for the GPU
        took_s = min(took_s, run.gpu_idle_s)
    text = "Python, and what it waits for, which no compiler helps: a Python profiler says where"
    return _elsewhere(run, _step("python", text, None, run.eager_known, {"Python": took_s}))


def _elsewhere(run: Run, step: NextStep) -> list[NextStep]:
    return [step] if step.seen_s >= WORTH_PCT_ELSEWHERE / 100 * run.wall_s else []


# --- GPUs, kernels, and what only a trial can tell -----------------------------------------------


def _launches(run: Run) -> list[NextStep]:
    """The time in regions in which the GPU waits for the host: CUDA graphs would spare it."""
    if run.report.compile.cudagraphs.were_tried:
        return []
    waiting = _waiting_share(run.report)
    if waiting is None:
        return []
    captured_s = run.row_s("captured")
    loop_s = captured_s + run.row_s("eager_ops") + run.row_s("python")
    bound_s = min(captured_s, waiting * loop_s)
    text = 'CUDA graphs: torch.compile(mode="reduce-overhead"); the GPU waits for launches'
    return [_step("launch-bound", text, None, "sampled", {"launching": bound_s})]


def _waiting_share(report: Report) -> float | None:
    """Of the time of the loop, how long the GPU waits; None where it is not known to.

    Kernel times tell, where they were asked for; otherwise how long it was not behind the host.
    """
    device = report.ops.device
    if device is not None and device.status == "sampled" and device.window_us:
        return 1 - min(1.0, device.busy_us / device.window_us)
    behind = [gpu.behind_pct for gpu in report.gpu.gpus if gpu.verdict == LAUNCH_BOUND]
    return max((1 - pct / 100 for pct in behind if pct is not None), default=None)


def _kernels(run: Run) -> list[NextStep]:
    """Far below the memory's peak, where their time is known; none that computes rather than
    moves."""
    steps = []
    for kernel in run.report.kernels:
        total_us, peak = kernel.device_time_total_us, kernel.peak_pct
        if total_us is None or peak is None or peak >= FAR_FROM_PEAK_PCT:
            continue
        if kernel.flops and (
            not kernel.total_bytes or kernel.flops > MEMORY_BOUND * kernel.total_bytes
        ):
            continue
        bound_s = total_us / 1e6 * (1 - peak / 100)
        text = (
            f"{kernel.kernel_name} reaches {percent(peak)} of the memory's bandwidth: only a trial "
            'tells what mode="max-autotune" makes of it'
        )
        steps.append(_step("kernel", text, None, TRIAL, {}, {"kernel": bound_s}))
    return steps


def _trials(run: Run) -> list[NextStep]:
    report, steps = run.report, []
    called = {graph.graph for graph in report.graphs if graph.calls}
    products = [k for k in report.kernels if k.language == "extern" and k.graph in called]
    # Before tuning, where both are bounded by the same time: in TF32 the same product is less work.
    if report.run.float32_matmul_precision == "highest" and report.run.device != "cpu":
        exact = [k for k in products if "float32" in k.arg_dtypes.values()]
        took_s = run.graphs_s(kernel.graph for kernel in exact if kernel.graph is not None)
        text = (
            f'{TRIAL_TELLS}torch.set_float32_matmul_precision("high"), which rounds what is '
            "multiplied to TF32"
        )
        steps.append(_step("tf32", text, None, TRIAL, {}, {"compiled code": took_s}))
    tuned = any("max_autotune" in graph.config for graph in report.graphs)
    if products and not tuned:
        took_s = run.graphs_s(kernel.graph for kernel in products if kernel.graph is not None)
        text = f'{TRIAL_TELLS}torch.compile(mode="max-autotune-no-cudagraphs")'
        steps.append(_step("max-autotune", text, None, TRIAL, {}, {"compiled code": took_s}))
    first_s = report.compile.first_s or 0.0
    is_large = any((graph.ops or 0) >= LARGE_GRAPH for graph in report.graphs)
    if is_large and first_s >= LARGE_COMPILE_PCT / 100 * run.wall_s:
        text = f"{TRIAL_TELLS}compile the block that a model repeats, not the whole model"
        steps.append(_step("regional", text, None, TRIAL, {}, {"compiling": first_s}))
    return steps


_FINDERS: tuple[Callable[[Run], list[NextStep]], ...] = (
    *(_not_compiled, _optimizer, _breaks, _eager, _recompiles, _cold_caches, _data),
    *(_launches, _kernels, _trials, _python),
)
