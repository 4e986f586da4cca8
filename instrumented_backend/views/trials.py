"""What the command ``try`` prints."""

import dataclasses

from instrumented_backend.records.trials import Agreement, Bound, Trial, TrialRun
from instrumented_backend.units import duration, elapsed, figure, seconds, size
from instrumented_backend.views.grid import Column, draw
from instrumented_backend.views.next_steps import TRIAL
from instrumented_backend.views.output import TableRow, to_json
from instrumented_backend.views.words import count, wrap

_NOT_IN_TABLE = ("failed", "not applicable", "not tried")
_FIGURES = frozenset({"at most", "speed-up", "compile s", "paid back", "memory"})
_LEAST = ("memory", "compile s", "paid back")
_START = "at the start"


@dataclasses.dataclass
class TrialView:
    """A row for each change that was measured; in JSON the whole run as one object."""

    run: TrialRun

    def text(self, width: int) -> str:
        run = self.run
        lines = [part for line in _above(run) for part in wrap(line, width)]
        rows = [_short(trial) for trial in run.trials if trial.verdict not in _NOT_IN_TABLE]
        if rows:
            columns = [
                Column(name, name, [str(row[name] or "-") for row in rows], name in _FIGURES)
                for name in rows[0]
            ]
            lines += ["", draw(columns, width, _LEAST), ""]
        return "\n".join(lines + [part for line in _below(run) for part in wrap(line, width)])

    def rows(self) -> list[TableRow]:
        return [trial_row(trial) for trial in self.run.trials]

    def json(self) -> str:
        return to_json({"schema_version": 1, **dataclasses.asdict(self.run)})


def progress_text(took_s: float, budget_s: float, what: str) -> str:
    """``"4 min 12 s of 10 min · dynamic, run 2"``"""
    return f"{elapsed(took_s)} of {elapsed(budget_s)} · {what} "


def _above(run: TrialRun) -> list[str]:
    step = "" if run.step_s is None else f", {duration(run.step_s * 1e6)} each"
    what = "whole runs" if run.unit == "run" else f"{count(run.steps, 'step')} ({run.unit})"
    if run.unit != "run":
        what += f" after {run.warmup}"
    memory = "" if run.peak_memory_bytes is None else f"; {size(run.peak_memory_bytes)}"
    compiling = "" if run.compile_s is None else f"; compiles in {seconds(run.compile_s)}"
    ran = f"{count(run.runs, 'run')} in {elapsed(run.took_s)}"
    return [f"{run.command}: {what}{step}{compiling}{memory} · {ran}", _headline(run)]


def _headline(run: TrialRun) -> str:
    best = next((trial for trial in run.trials if trial.verdict == "helps"), None)
    if best is not None:
        return f"{best.change} helps: {_times(best)} as fast. Write: {best.line}"
    open_ = [trial.change for trial in run.trials if trial.verdict in ("unclear", "not tried")]
    if run.interrupted or open_:
        left = f"; not settled: {', '.join(open_)}" if open_ else ""
        return f"no change is known to help so far{left}"
    return "no change helps"


def _short(trial: Trial) -> TableRow:
    """What a terminal has room for."""
    start = trial.verdict == _START
    saved = f"saves {seconds(trial.gain_s)}" if trial.gain_s is not None else None
    return {
        "change": trial.change,
        "at most": bound_text(trial.bound, start),
        "speed-up": None if start else _times(trial),
        "verdict": saved if start else trial.verdict,
        "compile s": figure(trial.compile_s, 3),
        "paid back": _paid_back(trial),
        "memory": None if trial.peak_memory_bytes is None else size(trial.peak_memory_bytes),
        "prints": prints_text(trial.prints),
    }


def _times(trial: Trial) -> str | None:
    """``"1.52x (1.49 … 1.55)"``"""
    found = trial.speed_up
    if found is None:
        return None
    if found.low is None or found.high is None:
        return f"{found.ratio:.2f}x ({count(found.pairs, 'pair')})"
    return f"{found.ratio:.2f}x ({found.low:.2f} … {found.high:.2f})"


def _paid_back(trial: Trial) -> str | None:
    steps = trial.paid_back_after_steps
    if steps is None:
        return None
    return f"after {count(steps, 'step')}" if steps else "at once"


def bound_text(bound: Bound | None, start: bool) -> str | None:
    """The bound as a speed-up, as the measured one is; of the start-up in seconds.

    ``"trial"`` where the report says that only a trial can tell.
    """
    if bound is None:
        return None
    if bound.known == TRIAL:
        return TRIAL
    if start or bound.bound_pct is None:
        return seconds(bound.bound_s)
    if bound.bound_pct > 99:
        return "> 100x"
    return f"{1 / (1 - bound.bound_pct / 100):.2f}x"


def prints_text(prints: Agreement | None) -> str | None:
    """``"same"``, ``"within 3e-07"``"""
    if prints is None:
        return None
    return prints.kind if prints.largest is None else f"within {prints.largest:.1g}"


def _below(run: TrialRun) -> list[str]:
    lines = []
    if any(trial.speed_up is not None for trial in run.trials):
        lines.append(
            "speed-up: of a step's time, as it is over changed, with its 95 % interval; at most: "
            "what the report of the program as it is told of it"
        )
    for trial in run.trials:
        if trial.verdict == _START:
            lines.append(f"{trial.change}: seconds of compiling, once a run: {trial.line}")
        if trial.verdict == "helps":
            lines.append(f"{trial.change}: {_cost(trial)}")
        lines += [f"{trial.change}: {note}" for note in trial.notes]
    for trial in run.trials:
        if trial.verdict in _NOT_IN_TABLE:
            lines.append(f"{trial.change}: {trial.verdict}: {trial.reason}")
    return [*lines, *run.notes]


def _cost(trial: Trial) -> str:
    """What a narrow table has no room for."""
    parts = [trial.line]
    if trial.compile_s is not None:
        paid = _paid_back(trial)
        parts.append(
            f"compiles in {seconds(trial.compile_s)}" + (f", paid back {paid}" * bool(paid))
        )
    if trial.peak_memory_bytes is not None:
        parts.append(size(trial.peak_memory_bytes))
    return "; ".join(parts)


def trial_row(trial: Trial) -> TableRow:
    """All of a trial."""
    bound, found, prints = trial.bound, trial.speed_up, trial.prints
    return {
        "change": trial.change,
        "verdict": trial.verdict,
        "reason": trial.reason,
        "line": trial.line,
        "bound_code": bound.code if bound else None,
        "bound_s": bound.bound_s if bound else None,
        "bound_pct": bound.bound_pct if bound else None,
        "bound_known": bound.known if bound else None,
        "gain_s": trial.gain_s,
        "gain_pct": trial.gain_pct,
        "speed_up": found.ratio if found else None,
        "speed_up_low": found.low if found else None,
        "speed_up_high": found.high if found else None,
        "pairs": found.pairs if found else None,
        "step_s": trial.step_s,
        "compile_s": trial.compile_s,
        "paid_back_after_steps": trial.paid_back_after_steps,
        "peak_memory_bytes": trial.peak_memory_bytes,
        "prints": prints.kind if prints else None,
        "prints_largest_difference": prints.largest if prints else None,
        "notes": "; ".join(trial.notes) or None,
    }
