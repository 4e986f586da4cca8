"""The part of a trace that is asked for: by step, or by time."""

import re
from dataclasses import dataclass

from instrumented_backend.traces.event_stream import TraceError
from instrumented_backend.traces.trace_file import Trace

_STEPS = re.compile(r"(?:ProfilerStep)?#(\d{1,15})(?:-#?(\d{1,15}))?")
_TIME = r"(?:(\d{1,15}(?:\.\d{0,15})?)\s*(us|ms|s)?)?"
_TIMES = re.compile(rf"{_TIME}\s*-\s*{_TIME}")
_MICROSECONDS = {"us": 1.0, "ms": 1e3, "s": 1e6, None: 1.0}


@dataclass(frozen=True)
class TimeRange:
    """Steps ``ProfilerStep#first`` to ``#last``, or µs from a trace's first event; None: open."""

    first_step: int | None = None
    last_step: int | None = None
    start_us: float | None = None
    end_us: float | None = None

    @classmethod
    def parse(cls, text: str) -> "TimeRange":
        """``ProfilerStep#3``, ``#3-5``, ``10ms-20ms``, ``10-20ms``, ``500-``; raises ValueError.

        A time without a unit has that of the other, else µs.
        """
        if steps := _STEPS.fullmatch(text):
            first = int(steps[1])
            last = int(steps[2] or first)
            if last < first:
                raise ValueError(f"{text!r}: step {last} is before step {first}")
            return cls(first_step=first, last_step=last)
        times = _TIMES.fullmatch(text)
        if times is None or not (times[1] or times[3]):
            raise ValueError(
                f"{_short(text)!r} is no range; give steps (ProfilerStep#3, #3-5) or times from the"
                " trace's first event (10ms-20ms, 1.5s-)"
            )
        start = float(times[1]) * _MICROSECONDS[times[2] or times[4]] if times[1] else None
        end = float(times[3]) * _MICROSECONDS[times[4] or times[2]] if times[3] else None
        if start is not None and end is not None and end <= start:
            raise ValueError(f"{text!r}: the range ends before it starts")
        return cls(start_us=start, end_us=end)

    def within(self, trace: Trace) -> tuple[int, int]:
        """Start and end in ns; raises TraceError where the trace has no such part.

        A step is the time between the start and the end of its mark on the host: on the GPU, too,
        what ran in that time, be it from the step before.
        """
        if self.first_step is not None and self.last_step is not None:
            spans = [
                span
                for number, span in trace.steps.items()
                if self.first_step <= number <= self.last_step
            ]
            if not spans:
                raise TraceError(f"{trace.path}: no such step; the steps in it: {_steps_of(trace)}")
            return min(low for low, _ in spans), max(high for _, high in spans)
        low = round((self.start_us or 0.0) * 1e3)
        high = trace.end if self.end_us is None else round(self.end_us * 1e3)
        if low >= min(high, trace.end):
            raise TraceError(
                f"{trace.path}: the range is behind its end, at {trace.end / 1e3:.1f} us"
            )
        return low, min(high, trace.end)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."


def _steps_of(trace: Trace) -> str:
    numbers = list(trace.steps)
    if not numbers:
        return "none"
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
