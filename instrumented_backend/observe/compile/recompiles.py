"""Functions that were recompiled, and the guards that failed."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass

from instrumented_backend.observe.messages.guards import FailedGuard, specialized
from instrumented_backend.records import GuardRecord, RecompileRecord

MAX_FUNCTIONS = 1_000
MAX_GUARDS = 50  # of one function
MAX_VALUES = 6  # of one guard
_SPECIALIZED = "specialized"  # a size that the program itself keeps from being dynamic


@dataclass
class Recompilation:
    """One, whose seconds are to come, and the guards that decided it."""

    record: RecompileRecord
    decided: list[GuardRecord]

    def took(self, seconds: float) -> None:
        self.record.compile_s += seconds
        for guard in self.decided:
            guard.decided_s += seconds
        for kind in {guard.kind for guard in self.decided}:
            self.record.decided_s[kind] = self.record.decided_s.get(kind, 0.0) + seconds


class RecompileLog:
    """One record a function, its counts exact however often it is compiled."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._functions: dict[tuple[object, ...], RecompileRecord] = {}
        self.count = 0  # recompilations in all
        self.left_out = 0  # those of functions beyond the first MAX_FUNCTIONS

    def add(
        self,
        compile_id: str,
        place: tuple[str | None, str | None, int | None],
        reason: str,
        guards: Iterable[FailedGuard],
        refused: bool,
        raised: bool = False,
        compiled: int | None = None,
        is_shared: bool = False,
    ) -> Recompilation | None:
        """A function (name, file, first line) was recompiled, or ``refused`` that: the limit.

        ``raised``: instead of running it eagerly, the program got an exception. ``compiled`` is the
        number of the torch.compile; ``is_shared``: those of one function are told apart by it.
        Returns what takes its seconds; None where it was refused, or beyond the limit of records.
        """
        self.count += not refused
        key = (*place, compiled if is_shared else None)
        record = self._functions.get(key)
        if record is None:
            if len(self._functions) >= MAX_FUNCTIONS:
                self.left_out += not refused
                return None
            record = RecompileRecord(compile_id, *place, reason, count=0, compiled=compiled)
            self._functions[key] = record
        if refused:
            record.limit_hits += 1
            record.limit_raised += raised
            return None
        record.count += 1
        found = specialized(list(guards))
        # One guard can fail against several compiled versions: with the newest version first.
        failed = {(_kind(guard.kind), guard.subject): guard for guard in reversed(found)}
        met = [self._failed(record, guard) for guard in failed.values()]
        known = [guard for guard, _ in met if guard is not None]
        # A version for another value is no reason to recompile where there is one for this value:
        # then it is another guard that this one fails on. Where no value is new, it is their
        # combination.
        decided = [guard for guard, is_new in met if guard is not None and is_new] or known
        for guard in decided:
            guard.decided += 1
        return Recompilation(record, decided)

    def _failed(
        self, record: RecompileRecord, guard: FailedGuard
    ) -> tuple[GuardRecord | None, bool]:
        """The guard's record, and whether no version was compiled for the value that it met."""
        for known in record.guards:
            if (_kind(known.kind), known.subject) == (_kind(guard.kind), guard.subject):
                if guard.kind == _SPECIALIZED:
                    known.kind, known.cure = guard.kind, guard.cure
                    known.cure_for_all, known.is_usual = guard.cure_for_all, guard.is_usual
                    _place(known, guard, record.file)
                break
        else:
            if len(record.guards) >= MAX_GUARDS:
                record.guards_left_out += 1
                return None, True
            known = GuardRecord(guard.kind, guard.subject, cure=guard.cure, reason=guard.text)
            known.cure_for_all, known.is_after_break = guard.cure_for_all, guard.is_after_break
            known.is_usual = guard.is_usual
            _place(known, guard, record.file)
            record.guards.append(known)
        is_new = guard.new is None or guard.new not in known.values
        known.count += 1
        for value in (guard.old, guard.new):
            if value is None or value in known.values:
                continue
            if len(known.values) < MAX_VALUES:
                known.values.append(value)
            else:
                known.more_values = True
        return known, is_new

    def records(self) -> list[RecompileRecord]:
        """Copies, those that took the most time first."""
        records = copy.deepcopy(list(self._functions.values()))
        for record in records:
            record.guards.sort(key=lambda guard: -guard.count)
        return sorted(records, key=lambda record: (-record.limit_hits, -record.compile_s))


def _kind(kind: str) -> str:
    """A size is one guard, though the first version may have it as any size, and later ones not."""
    return "shape" if kind == _SPECIALIZED else kind


def _place(known: GuardRecord, guard: FailedGuard, functions_file: str | None) -> None:
    if guard.frame is not None:
        known.file, known.line = guard_place(guard, functions_file)
        known.source = guard.frame.source


def guard_place(guard: FailedGuard, functions_file: str | None) -> tuple[str | None, int | None]:
    """The user's line that made it; ``functions_file`` has the function that it guards."""
    if guard.frame is None:
        return None, None
    return _whole(guard.frame.file, functions_file), guard.frame.line


def _whole(file: str, functions_file: str | None) -> str:
    """Some reasons have the last two parts of the path only."""
    if functions_file is not None and functions_file.endswith(f"/{file}"):
        return functions_file
    return file
