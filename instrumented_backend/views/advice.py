"""What stands below a table: figures over all its rows, and what to do next."""

from instrumented_backend.records import CudaGraphsSection, RecompileRecord, Report
from instrumented_backend.records.compilation import longest_first
from instrumented_backend.records.fields import field_values
from instrumented_backend.units import duration, percent, seconds, size
from instrumented_backend.views.meanings import explained, ledger_meanings
from instrumented_backend.views.words import count, function_words, phase, short_path

WORTH_SAYING_PCT = 10.0
LARGE_SPREAD_POINTS = 5.0  # of wall time, to either side


def remarks(report: Report, table: str) -> list[str]:
    """Lines over all rows, each one sentence long."""
    if table == "ledger":
        return _ledger_remarks(report)
    if table == "missing":
        return _missing_remarks(report)
    if table == "compile":
        return _compile_remarks(report)
    if table == "caches":
        return _cache_remarks(report)
    if table == "counters":
        return _counter_remarks(report)
    return []


def next_steps(report: Report, table: str) -> list[str]:
    """What to do; nothing where there is nothing to do."""
    steps = _STEPS.get(table)
    return steps(report) if steps else []


# --- Below the tables ---------------------------------------------------------------------------


def _ledger_remarks(report: Report) -> list[str]:
    ledger = report.ledger
    lines = ledger_meanings(row.row for row in ledger.rows)
    if any(row.threads == "other" for row in ledger.rows):
        lines.append("other threads: seconds of all of them together, beside the main thread's")
    return lines if ledger.note is None else [*lines, ledger.note]


def _missing_remarks(report: Report) -> list[str]:
    if any(record.count_spread for record in report.ops.missing):
        return ["±: two standard errors of a count that is sampled"]
    return []


def _compile_remarks(report: Report) -> list[str]:
    compiling = report.compile
    if not compiling.total_s:
        return []
    shares = (
        f"{phase(name)} {seconds(took)} ({percent(compiling.pct_of_total(took))})"
        for name, took in longest_first(compiling.phases)
    )
    lines = [f"in all {seconds(compiling.total_s)}: {', '.join(shares)}"]
    if compiling.first_s is not None:
        parts = (
            ("forward", compiling.forward_s),
            ("backward", compiling.backward_s),
            ("at run time", compiling.run_time_s),
        )
        named = [f"{name} {seconds(took)}" for name, took in parts if took]
        later = f"; first compilations {seconds(compiling.first_s)}"
        if compiling.later_s:
            later += f", recompilations {seconds(compiling.later_s)}"
        lines.append(", ".join(named) + later)
    return lines + _cudagraph_remarks(compiling.cudagraphs)


def _cudagraph_remarks(cudagraphs: CudaGraphsSection) -> list[str]:
    if not cudagraphs.were_tried:
        return []
    memory = cudagraphs.memory_bytes
    held = "" if memory is None else f", {size(memory)} held"
    lines = [
        f"CUDA graphs: {cudagraphs.recorded} recorded, {count(cudagraphs.replayed, 'replay')}{held}"
    ]
    for what, reasons in (
        ("recorded again", cudagraphs.re_recorded),
        ("skipped", cudagraphs.skipped),
    ):
        lines += [
            f"CUDA graphs {what}, {count(times, 'time')}: {reason}"
            for reason, times in reasons.items()
        ]
    return lines


def _cache_remarks(report: Report) -> list[str]:
    caches = report.caches
    lines = []
    if caches.saved_s:
        lines.append(f"what came from caches took {seconds(caches.saved_s)} to compile before")
    for counts, words in ((caches.code, "kernel code"), (caches.autotune, "autotuning")):
        moved = {name: value for name, value in field_values(counts).items() if value}
        if moved:
            listed = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in moved.items())
            lines.append(f"{words}: {listed}")
    if caches.bytes:
        lines.append(f"entries on disk: {size(caches.bytes)}")
    return lines


def _counter_remarks(report: Report) -> list[str]:
    """Each counter that moved, and what it counts."""
    moved = {
        (group, name)
        for groups in (report.counters.in_graphs, report.counters.outside)
        for group, members in groups.items()
        for name, value in members.items()
        if value
    }
    return explained(moved)


# --- Next ---------------------------------------------------------------------------------------


def _after_breaks(report: Report) -> list[str]:
    theirs = [record for record in report.breaks if record.whose is None]  # who reads this
    placed = [record for record in theirs if record.file is not None]
    unseen = placed and all(record.eager_ops is None for record in placed)
    at_limit = [record for record in theirs if record.is_recompile_limit]
    worst = next(iter(placed or at_limit), None)
    steps = []
    if worst is None:
        return []
    if worst.is_recompile_limit:
        steps.append("INSTRUMENTED_TABLES=recompiles says what to change at the recompile limit")
    else:
        hint = f": {worst.hint}" if worst.hint else ""
        cost = f" ({duration(worst.eager_time_us)})" if worst.eager_time_us else ""
        what = short_path(worst.file, worst.line) if worst.file else worst.reason.rstrip(".")
        steps.append(f"start with {what}{cost}{hint}")
    if unseen and report.summary.graph_calls:
        steps.append("INSTRUMENTED_OPS=always shows what each one costs")
    return steps


def _after_recompiles(report: Report) -> list[str]:
    at_limit = [record for record in report.recompiles if record.limit_hits]
    steps = []
    if at_limit:
        names = ", ".join(function_words(record.function) for record in at_limit[:3])
        steps.append(
            f"{names}: change what the guards are on, or raise torch._dynamo.config.recompile_limit"
        )
    shapes = [record for record in report.recompiles if _are_cured(record)]
    if shapes:
        lost = sum(record.decided_s["shape"] for record in shapes)
        steps.append(
            f"torch.compile(dynamic=True) for {function_words(shapes[0].function)}: "
            f"changing shapes took {seconds(lost)}"
        )
    if not steps:
        worst = report.recompiles[0]
        guards = sorted(worst.guards, key=lambda guard: -guard.decided_s)
        cures = (guard.cure for guard in guards if guard.cure and not guard.is_usual)
        cure = next(cures, None)
        steps += [f"{function_words(worst.function)}: {cure}"] if cure else []
    return steps


def _are_cured(record: RecompileRecord) -> bool:
    """Are its sizes, where they decided, such as can be dynamic?"""
    return bool(record.decided_s.get("shape")) and all(
        guard.kind != "specialized" for guard in record.guards
    )


def _after_missing(report: Report) -> list[str]:
    if report.breaks:
        return ["INSTRUMENTED_TABLES=breaks says why; the rest is outside what is compiled"]
    return ["compile what holds these lines: torch.compile takes a step with its optimizer too"]


def _after_caches(report: Report) -> list[str]:
    caches = report.caches
    states = caches.graphs
    steps = []
    if caches.bypass_reasons:
        reason, graphs = max(caches.bypass_reasons.items(), key=lambda item: item[1])
        steps.append(f"{count(graphs, 'graph')} cannot be cached: {reason}")
    if states.miss and not states.hit:
        steps.append(
            "keep TORCHINDUCTOR_CACHE_DIR (or /tmp/torchinductor_USER) between runs: the next one "
            "finds these graphs there"
        )
    if states.off:
        steps.append(f"{count(states.off, 'graph')} compiled with the caches off")
    return steps


def _after_compile(report: Report) -> list[str]:
    compiling = report.compile
    if not compiling.total_s:
        return []
    steps = []
    if compiling.pct_of_total(compiling.later_s) >= WORTH_SAYING_PCT:
        steps.append("INSTRUMENTED_TABLES=recompiles: what was recompiled, and the cure")
    if report.caches.graphs.miss > report.caches.graphs.hit:
        steps.append("run it again: with warm caches most of this is spared")
    if compiling.pct_of_total(compiling.phases.get("autotune_s")) >= WORTH_SAYING_PCT:
        steps.append("autotuning is kept in the cache; mode='default' does without it")
    return steps + _cudagraph_steps(compiling.cudagraphs)


def _cudagraph_steps(cudagraphs: CudaGraphsSection) -> list[str]:
    steps = []
    if cudagraphs.had_mutated_inputs:
        steps.append("return new tensors instead of changing inputs in place, for CUDA graphs")
    if cudagraphs.had_new_sizes:
        steps.append("pad to few sizes: each one has a CUDA graph of its own")
    return steps


def _after_ledger(report: Report) -> list[str]:
    spread = report.ledger.largest_spread_pct
    if spread is not None and spread > LARGE_SPREAD_POINTS:
        return ["INSTRUMENTED_OPS=always observes the whole run, for up to 5 % of its time"]
    return []


_STEPS = {
    "ledger": _after_ledger,
    "breaks": _after_breaks,
    "recompiles": _after_recompiles,
    "missing": _after_missing,
    "caches": _after_caches,
    "compile": _after_compile,
}
