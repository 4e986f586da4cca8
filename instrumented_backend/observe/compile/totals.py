"""Seconds of compilations, added up by phase and by part."""

from instrumented_backend.observe.compile.phases import PHASES, Span
from instrumented_backend.records import CompileRecord


class Totals:
    """Seconds of all compilations, of those that are no longer listed too."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self.phases_s: dict[str, float] = {f"{phase}_s": 0.0 for phase in PHASES}
        self.parts_s = {
            part: 0.0 for part in ("forward_s", "backward_s", "first_s", "later_s", "run_time_s")
        }
        self.count = 0

    def add(self, record: CompileRecord, first: bool = False) -> None:
        """A finished compilation; the ``first`` of a module may have the id of a later one."""
        total_s = record.total_s or 0.0
        self.count += 1
        self.total_s += total_s
        for phase, seconds in record.phases_s.items():
            self.phases_s[phase] += seconds or 0.0
        self.parts_s[f"{record.direction}_s"] += total_s
        self.parts_s["first_s" if is_first(record, first) else "later_s"] += total_s

    def add_run_time(self, seconds: dict[str, float | None]) -> None:
        for phase, more in seconds.items():
            self.phases_s[phase] += more or 0.0
            self.parts_s["run_time_s"] += more or 0.0
            self.total_s += more or 0.0


def seconds_by_phase(span: Span) -> dict[str, float | None]:
    """Every phase, those that did not run with 0; together they are the span's total."""
    return {f"{phase}_s": span.seconds.get(phase, 0.0) for phase in PHASES}


def is_first(record: CompileRecord, first: bool) -> bool:
    """Is it its function's first compilation? A module's first may have the id of a later one."""
    return first or record.compile_id.rpartition("/")[2] == "0"
