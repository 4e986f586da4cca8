"""What became of each ``torch.compile``: from calls, graphs and causes to the report's records."""

import inspect
import multiprocessing
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

from instrumented_backend.observe.compile.compiled import Cause, Compiled, Function
from instrumented_backend.observe.messages.reasons import BreakReason, read_last_reason, read_reason
from instrumented_backend.observe.messages.user_code import is_installed, is_internal
from instrumented_backend.records import CompiledRecord, Compiling, GraphRecord, notes
from instrumented_backend.records.compiled import (
    COMPILING,
    EAGER,
    INLINED,
    NEVER_CALLED,
    PARTLY_EAGER,
    RAISED,
)
from instrumented_backend.torch_compat import compiled as torch_compiled

# Under the first, no call runs a graph; under the others, one may not.
_FORCED = frozenset({"force_eager", torch_compiled.FORCED_BACKEND})
_LATER = frozenset(
    {
        *("eager_on_recompile", "eager_then_compile", "aot_eager_then_compile"),
        torch_compiled.FAILING_STANCE,
    }
)
_MODULES = os.path.join("torch", "nn", "modules", "")


def cause_of(
    function: Function,
    met: BreakReason | None,
    message: str | None,
    at: tuple[str | None, int | None],
    refused: bool,
) -> Cause:
    """Why a compilation came to no graph: the limit, a break, an error, or nothing to compile.

    ``met`` is the break that it ran into last, ``message`` Dynamo's, of the line ``at``.
    """
    if refused:
        reason = read_reason(message or "").headline
        return Cause(notes.RECOMPILE_LIMIT, reason, function, *function[1:])
    if met is not None:
        is_disabled = met.reason.disabled_function is not None
        code = notes.DISABLED if is_disabled else notes.GRAPH_BREAK
        reason = met.reason.text
        why = read_last_reason(message) if message else met.reason
        if why != met.reason:
            reason = f"{reason.rstrip('.')}; {why.headline}"
        place = (met.frame.file, met.frame.line) if met.frame else function[1:]
        return Cause(code, reason, function, *place)
    if message:
        place = at if at[0] else function[1:]
        return Cause(notes.NOT_COMPILABLE, read_reason(message).text, function, *place)
    reason = "Dynamo found no tensor operation in it"
    return Cause(notes.NOTHING_TO_COMPILE, reason, function, *function[1:])


def compiled_records(
    compiled: Iterable[Compiled],
    graphs: Sequence[GraphRecord],
    captured_ops: int | None,
    compiling: Sequence[Compiling] = (),
) -> list[CompiledRecord]:
    """In the order in which the program called ``torch.compile``.

    ``compiling``: what is being compiled now, in a call that has not ended.
    """
    known = list(compiled)
    made: dict[int, list[GraphRecord]] = {one.number: [] for one in known}
    for graph in graphs:
        if graph.compiled in made:
            made[graph.compiled].append(graph)
    members: dict[int, list[Compiled]] = {}
    for one in known:
        members.setdefault(_code_of(one), []).append(one)
    families = {code: _Family(ones, made) for code, ones in members.items()}
    time_us = sum(graph.time_us or 0.0 for graph in graphs)
    records = []
    for one in known:
        calls = one.calls
        one.left_stance(torch_compiled.present_stance())
        if one.inherited and not calls:
            continue
        record = _record(one, calls, made[one.number])
        if one.is_off:
            record.calls, record.outcome = None, EAGER
            record.reason, record.reason_code = f"{torch_compiled.SWITCH}=1", notes.SWITCHED_OFF
            records.append(record)
            continue
        served = _served(one, calls, families[_code_of(one)], record)
        _decide(record, one, calls, served, compiling)
        if captured_ops:
            record.pct_ops = 100 * (record.captured_ops or 0) / captured_ops
        if time_us:
            record.pct_time = 100 * (sum(g.time_us or 0.0 for g in made[one.number]) / time_us)
        records.append(record)
    return records


def is_worth_a_report(records: Iterable[CompiledRecord]) -> bool:
    """In a process that compiled nothing.

    Not what a library wraps when it is imported, nor what a child process wraps because it imports
    the same modules: nobody there meant to call it.
    """
    known = list(records)
    never = [record for record in known if record.outcome == NEVER_CALLED or _is_off(record)]
    is_child = multiprocessing.parent_process() is not None or _is_fork_server()
    own = [record for record in never if record.file is None or not is_installed(record.file)]
    return len(never) < len(known) or bool(own and not is_child)


def _is_fork_server() -> bool:
    """A process of multiprocessing's that imports the program's modules for its children."""
    return any("multiprocessing.forkserver" in argument for argument in sys.orig_argv)


def _is_off(record: CompiledRecord) -> bool:
    """Did ``torch.compile`` return what it was given? Whether that was called is not known."""
    return record.calls is None and record.reason_code == notes.SWITCHED_OFF


def _code_of(one: Compiled) -> int:
    """A number that all with the same code share; one of its own where the code is not known."""
    return -1 - one.number if one.target.code_id is None else one.target.code_id


def _record(one: Compiled, calls: int, graphs: list[GraphRecord]) -> CompiledRecord:
    site, target = one.site, one.target
    return CompiledRecord(
        compiled=one.number,
        call=(site and site.text()) or f"torch.compile({target.name})",
        file=site.file if site else None,
        line=site.line if site else None,
        target=target.name,
        path=target.path,
        calls=None if target.is_class else calls,
        graphs=[graph.graph for graph in graphs if graph.graph is not None],
        graph_calls=_forward_calls(graphs),
        captured_ops=_ops(graphs),
        limit_hits=one.limit_hits,
        first_eager_call=one.first_eager_call,
        receiver=site.receiver() if site is not None and one.by_method else None,
    )


def _forward_calls(graphs: Iterable[GraphRecord]) -> int:
    return sum(graph.calls for graph in graphs if graph.direction == "forward")


def _ops(graphs: Iterable[GraphRecord]) -> int:
    return sum(
        (graph.forward_ops or 0) * (graph.calls if graph.direction == "forward" else 0)
        + (graph.backward_ops or 0) * graph.backward_calls
        for graph in graphs
    )


class _Family:
    """All that were made of the same code: there Dynamo keeps what it compiled.

    The one's calls may run the other's graphs.
    """

    def __init__(self, members: list[Compiled], made: dict[int, list[GraphRecord]]) -> None:
        makers = [one for one in members if _forward_calls(made[one.number])]
        self.size = len(members)
        self.calls = sum(one.calls - one.raised for one in members)
        self.makers = {one.number for one in makers}
        self.makers_calls = sum(one.calls for one in makers)
        self.graphs = [graph for one in makers for graph in made[one.number]]
        self.graph_calls = _forward_calls(self.graphs)
        self.runs_one_a_call = all(_runs_one_graph_a_call(one, made[one.number]) for one in makers)


def _served(one: Compiled, calls: int, family: _Family, record: CompiledRecord) -> bool:
    """Did its calls run graphs: its own, or those of another ``torch.compile`` of the same code?

    Fills in ``shared_graphs`` and ``eager_calls``.
    """
    forced = sum(count for stance, count in one.stances.items() if stance in _FORCED)
    if one.number in family.makers:
        if family.runs_one_a_call:
            eager = max(0, family.calls - family.graph_calls)
            is_known = family.size == 1 and torch_compiled.FAILING_STANCE not in one.stances
            record.eager_calls = eager if is_known or not eager else None
        return True
    # Calls of their graphs that cannot have been in calls of their own.
    spare = family.graph_calls - family.makers_calls
    if calls > forced and spare >= calls - forced:
        record.shared_graphs = [g.graph for g in family.graphs if g.graph is not None]
        record.eager_calls = forced
        return True
    record.eager_calls = max(0, calls - _raised(one))
    return False


def _raised(one: Compiled) -> int:
    """Calls that ended in Dynamo's exception, where none ran a graph."""
    code = one.target.code() if one.target.code is not None else None
    if code is not None and torch_compiled.is_skipped(code):
        return one.raised  # a stance does not fail for what is skipped
    return one.raised + one.stances.get(torch_compiled.FAILING_STANCE, 0)


def _runs_one_graph_a_call(one: Compiled, graphs: list[GraphRecord]) -> bool:
    """Are all graphs versions of the compiled function as a whole?"""
    ids = {graph.compile_id for graph in graphs}
    places = {(graph.file, graph.line) for graph in graphs if graph.ended_by is None}
    return len(ids) == len(graphs) and places == {one.target.function[1:]}


def _decide(
    record: CompiledRecord,
    one: Compiled,
    calls: int,
    served: bool,
    compiling: Sequence[Compiling],
) -> None:
    """The outcome, and the reason where calls ran eagerly."""
    if not calls and not served:
        record.outcome = INLINED if one.inlined else NEVER_CALLED
        return
    under = {stance: count for stance, count in one.stances.items() if stance in _FORCED}
    if served:
        cause = None
        if one.limit_hits and record.eager_calls != 0:
            # None where it was of another function, such as an optimizer's step, that it calls.
            cause = next((c for c in one.causes if c.code == notes.RECOMPILE_LIMIT), None)
        elif under:
            cause = _stance(under)
        elif record.eager_calls:
            cause = next((c for c in one.causes if c.code == notes.SKIPPED), None)
        if cause is None:
            return
        record.outcome = PARTLY_EAGER
    else:
        raised = _raised(one)
        record.outcome = RAISED if raised and raised >= calls else EAGER
        cause = _reason(one, calls)
        own = any((each.file, each.line) == one.target.function[1:] for each in compiling)
        if own or (compiling and cause.code == notes.UNKNOWN):  # a function that it calls
            record.outcome, record.eager_calls = COMPILING, None
            return
    record.reason, record.reason_code = cause.reason, cause.code
    record.reason_file, record.reason_line = cause.file, cause.line


def _stance(calls: dict[str, int]) -> Cause:
    listed = " and ".join(
        f"torch.compiler.set_stance({_argument(stance)}) was in force for {count} of them"
        for stance, count in calls.items()
    )
    return Cause(notes.STANCE, listed, (None, None, None))


def _argument(stance: str) -> str:
    return f"{stance}=..." if stance == torch_compiled.FORCED_BACKEND else f'"{stance}"'


def _reason(one: Compiled, calls: int) -> Cause:
    """Why no call ran a graph: what was seen, then what torch answers when asked."""
    target = one.target
    stances = {s: count for s, count in one.stances.items() if s in _FORCED | _LATER}
    if sum(stances.values()) >= calls:
        return _stance(stances)
    skipped = [cause for cause in one.causes if cause.code == notes.SKIPPED]
    met = [cause for cause in one.causes if cause not in skipped]
    own = [cause for cause in met if cause.function[1:] == target.function[1:]]
    if met:
        cause = (own or met)[0]
        if cause.code == notes.GRAPH_BREAK and is_internal(cause.function[1] or ""):
            words = f"{target.name}'s own frames are torch's, which Dynamo cannot trace"
            return replace(cause, code=_of_torchs(one), reason=f"{words}: {cause.reason}")
        return cause
    code = target.code() if target.code is not None else None
    if target.is_disabled:
        return _of(one, notes.DISABLED, f"{target.name} is under torch.compiler.disable")
    if code is not None and code.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR):
        return _of(one, notes.NOT_COMPILABLE, "it is a generator, which Dynamo does not compile")
    if skipped:
        return skipped[0]
    if code is not None and torch_compiled.is_skipped(code):
        words = f"{target.name}'s own frames are torch's, which Dynamo skips"
        return Cause(_of_torchs(one), words, target.function)
    if torch_compiled.is_switched_off():
        return _of(one, notes.SWITCHED_OFF, "torch._dynamo.config.disable is set")
    return _of(one, notes.UNKNOWN, "Dynamo began no compilation, and does not say why")


def _of_torchs(one: Compiled) -> str:
    """Whether it is a module such as ``nn.Sequential``, or a wrapper round the program's."""
    is_module = _MODULES in (one.target.function[1] or "")
    return notes.TORCHS_FRAMES if is_module else notes.TORCHS_WRAPPER


def _of(one: Compiled, code: str, reason: str) -> Cause:
    return Cause(code, reason, one.target.function, *one.target.function[1:])
