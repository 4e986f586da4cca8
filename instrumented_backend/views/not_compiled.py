"""The loudest lines of the summary: what ``torch.compile`` was asked for and did not do."""

from instrumented_backend.records import CompiledRecord, Report, notes
from instrumented_backend.records.compiled import (
    EAGER,
    NEVER_CALLED,
    PARTLY_EAGER,
    RAISED,
)
from instrumented_backend.views.words import count, short_path

MAX_LINES = 3
CURES = {
    notes.TORCHS_FRAMES: "compile the module that calls it",
    notes.TORCHS_WRAPPER: "compile the module inside it, before it is wrapped",
    notes.DISABLED: "take torch.compiler.disable off it, or compile what it does not cover",
    notes.STANCE: "for compiled code, leave the stance at its default",
    notes.SWITCHED_OFF: "unset it",
    notes.GRAPH_BREAK: "take the cause out of the function, or compile what it calls",
    notes.RECOMPILE_LIMIT: "INSTRUMENTED_TABLES=recompiles says which guards failed",
    notes.UNKNOWN: 'TORCH_LOGS="+dynamo" shows what Dynamo does with each function',
}

_Case = tuple[str, str | None, int | None, str, str | None, str | None, int | None]


def not_compiled(report: Report) -> list[str]:
    """A line for each place in the program, the most calls first; nothing where all is well."""
    nothing = not report.graphs
    cases: dict[_Case, list[CompiledRecord]] = {}
    for record in report.compiled:
        if record.outcome in (EAGER, NEVER_CALLED, PARTLY_EAGER, RAISED):
            cases.setdefault(_case(record), []).append(record)
    listed = sorted(cases.values(), key=lambda case: -sum(_eager(record) for record in case))
    lines = [f"{_headline(case, nothing)}: {_told(case)}" for case in listed[:MAX_LINES]]
    if len(listed) > MAX_LINES:
        lines.append(f"{len(listed) - MAX_LINES} more: INSTRUMENTED_TABLES=compiled lists them")
    return lines


def _case(record: CompiledRecord) -> _Case:
    """What is told in one line: the same call at the same place, with the same outcome."""
    reason = None if record.reason_code == notes.STANCE else record.reason
    place = record.reason_file, record.reason_line
    return record.call, record.file, record.line, record.outcome, reason, *place


def _eager(record: CompiledRecord) -> int:
    return (record.calls if record.eager_calls is None else record.eager_calls) or 0


def _headline(case: list[CompiledRecord], nothing: bool) -> str:
    outcome = case[0].outcome
    if nothing:
        return "nothing was compiled"
    return "ran eagerly" if outcome == PARTLY_EAGER else "not compiled"


def _told(case: list[CompiledRecord]) -> str:
    """``torch.compile(model) at train.py:31 was called 300 times and ran eagerly: ...``"""
    first = case[0]
    subject = f"{first.call} at {short_path(first.file, first.line)}"
    if len(case) > 1:
        subject += f" ({len(case)} times, first for {first.name})"
    elif first.path is not None and first.path != first.target:
        subject += f" ({first.path})"
    if first.outcome == NEVER_CALLED:
        return f"{subject} was never called; {_to_call(first)}"
    if first.calls is None and first.reason_code == notes.SWITCHED_OFF:
        return f"{subject} compiles nothing: {first.reason} is set; {CURES[notes.SWITCHED_OFF]}"
    known = [record.calls for record in case if record.calls is not None]
    called = f"was called {count(sum(known), 'time')}" if known else "was called"
    if first.outcome == RAISED:
        verb = "and raised"
    elif first.outcome == EAGER:
        verb = "and ran eagerly"
    else:
        verb = _partly(case)
    told = f"{subject} {called} {verb}: {(first.reason or 'unknown').rstrip('.')}"
    if first.reason_file is not None and (first.reason_file, first.reason_line) != (
        first.file,
        first.line,
    ):
        told += f", at {short_path(first.reason_file, first.reason_line)}"
    cure = CURES.get(first.reason_code or "")
    if first.reason_code == notes.TORCHS_FRAMES and first.receiver is not None:
        cure = f"use torch.compile({first.receiver}), or {cure}"
    return f"{told}; {cure}" if cure else told


def _to_call(record: CompiledRecord) -> str:
    """What people call in its place: the model itself, or a method of what was returned."""
    if record.calls is None:  # a class
        return "it compiles the calls of its instances alone"
    if record.call.startswith("@"):
        return "call the function by its name"
    if record.call.endswith(".compile()"):
        model = record.call.removesuffix(".compile()")
        return f"only {model}(...) runs compiled code, not {model}.forward(...) or a copy of it"
    if record.path is not None:
        return "only the call of what it returned runs compiled code, not the model nor a method"
    return "call what it returned"


def _partly(case: list[CompiledRecord]) -> str:
    if all(record.eager_calls is not None for record in case):
        return f"and ran eagerly in {sum(_eager(record) for record in case)} of them"
    since = case[0].first_eager_call
    return "and ran eagerly in some of them" + ("" if since is None else f", from call {since} on")
