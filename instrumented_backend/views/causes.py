"""Graph breaks and recompilations as blocks: too much to say of each for a row."""

from collections.abc import Callable

from instrumented_backend.records import BreakRecord, GuardRecord, NextStep, RecompileRecord, Report
from instrumented_backend.units import duration, seconds
from instrumented_backend.views.names import Names
from instrumented_backend.views.next_steps import TRIAL, at_most, next_steps
from instrumented_backend.views.words import count, function_words, short_path, wrap

MAX_NAMES = 4  # of graphs or functions in one line

Block = tuple[str, list[str]]  # its headline, and what is said below


def render_blocks(title: str, blocks: list[Block], width: int, max_blocks: int) -> str:
    """The blocks under the title; nothing where there are none."""
    if not blocks:
        return ""
    lines = wrap(title, width)
    for headline, said in blocks[:max_blocks]:
        lines += wrap(headline, width, break_words=True)
        for text in said:
            lines += [f"  {line}" for line in wrap(text, width - 2, break_words=True)]
    if len(blocks) > max_blocks:
        lines.append(f"... {len(blocks) - max_blocks} more in the report")
    return "\n".join(lines)


def used_at(file: str | None, line: int | None, source: str | None) -> str:
    """``model.py:15 `y = x * n` ``"""
    where = short_path(file, line)
    return where if source is None else f"{where} `{source}`"


# --- Breaks -------------------------------------------------------------------------------------


def _break_block(record: BreakRecord) -> Block:
    if record.file is None:
        headline = "somewhere (Dynamo does not say where)"
    else:
        inside = f" in {record.function}" if record.function else ""
        headline = f"{short_path(record.file, record.line)}{inside}"
        if record.source:
            headline += f": {record.source}"
    said = [record.reason]
    if record.called_file is not None:
        said.append(f"called from {short_path(record.called_file, record.called_line)}")
    for function in record.skipped[:MAX_NAMES]:
        where = short_path(function.file, function.line)
        why = f": {function.reason}" if function.reason else ""
        said.append(f"ran eagerly as a whole: {function.function} ({where}){why}")
    if len(record.skipped) > MAX_NAMES:
        said.append(f"ran eagerly as a whole: {len(record.skipped) - MAX_NAMES} more")
    said.append(" · ".join(_break_costs(record)))
    if record.hint:
        said.append(f"try: {record.hint}")
    return headline, said


def _break_costs(record: BreakRecord) -> list[str]:
    said = [f"met {count(record.count, 'time')}"]
    for words, graphs in (("after", record.graphs_before), ("before", record.graphs_after)):
        if graphs:
            noun = "graph" if len(graphs) == 1 else "graphs"
            named = ", ".join(map(str, graphs[:MAX_NAMES]))
            said.append(f"{words} {noun} {named}{', ...' if len(graphs) > MAX_NAMES else ''}")
    if record.eager_ops is None or record.eager_time_us is None:
        said.append("cost not seen")
    else:
        ops = count(record.eager_ops, "eager op")
        said.append(f"{ops}, {duration(record.eager_time_us)}" if record.eager_ops else ops)
    return said


# --- Recompiles ---------------------------------------------------------------------------------


def _recompile_block(record: RecompileRecord, names: Names) -> Block:
    place = names.place(record.compiled, record.function, record.file, record.line)
    function = names.function(record.compiled, record.function)
    headline = (
        f"{function_words(function)} ({short_path(*place)}): recompiled "
        f"{count(record.count, 'time')}, {seconds(record.compile_s)}"
    )
    said = []
    if record.limit_hits:
        said.append(
            "RECOMPILE LIMIT REACHED: what none of its compiled versions fits "
            + ("raises, with fullgraph=True" if record.limit_raised else "runs eagerly")
        )
    for guard in record.guards:
        said += _guard_lines(guard, record.count)
    if record.guards_left_out:
        said.append(f"{count(record.guards_left_out, 'failure')} of further guards")
    if not record.guards and record.reason:
        said.append(record.reason)
    return headline, said


def _guard_lines(guard: GuardRecord, recompiles: int) -> list[str]:
    text = guard.subject
    if guard.values:
        text += f": {' → '.join(guard.values)}"
        if len(guard.values) < 2:
            text += " → something else"
        elif guard.more_values:
            text += " → ..."
    if recompiles > 1:
        text += f" ({count(guard.count, 'time')})"
    if guard.file is not None:
        text += f", used at {used_at(guard.file, guard.line, guard.source)}"
    return [text, f"try: {guard.cure}"] if guard.cure else [text]


def _recompile_blocks(report: Report) -> list[Block]:
    names = Names(report)
    return [_recompile_block(record, names) for record in report.recompiles]


# --- Next steps ---------------------------------------------------------------------------------


def _next_block(step: NextStep) -> Block:
    where = "" if step.file is None else f"{short_path(step.file, step.line)}: "
    parts = [f"{name} {seconds(took)}" for name, took in step.parts_s.items()]
    told = f"{at_most(step)}; {step.known}" if step.known != TRIAL else at_most(step)
    said = f"{told}: {', '.join(parts)}"
    if step.seen_s and (len(parts) > 1 or step.seen_s < step.bound_s):
        said += f"; {seconds(step.seen_s)} of it is the cause's own"
    if step.known == TRIAL:
        said += "; only a trial tells how much of it"
    return f"{where}{step.text}", [said]


BLOCKS: dict[str, Callable[[Report], list[Block]]] = {
    "breaks": lambda report: [_break_block(record) for record in report.breaks],
    "recompiles": _recompile_blocks,
    "next": lambda report: [_next_block(step) for step in next_steps(report)],
}
