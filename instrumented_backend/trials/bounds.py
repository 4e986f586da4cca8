"""What the report of the program as it is says that each change can win at most."""

from instrumented_backend.records import NextStep, Report
from instrumented_backend.records.trials import Bound
from instrumented_backend.trials.changes import CHANGES, WARM_CACHES
from instrumented_backend.views.next_steps import next_steps


def bounds(whole: Report | None, measured: Report | None) -> dict[str, Bound]:
    """By the names of the changes of which a next step speaks; the largest where several do.

    In seconds and percent of the measured steps; what warm caches win, of the whole run.
    """
    in_steps = [] if measured is None else next_steps(measured)
    in_all = [] if whole is None else next_steps(whole)
    found = {}
    for change in CHANGES:
        steps = in_all if change.name == WARM_CACHES or measured is None else in_steps
        told = [step for step in steps if step.code in change.codes]
        if told:
            found[change.name] = _bound(max(told, key=lambda step: step.bound_s))
    return found


def _bound(step: NextStep) -> Bound:
    return Bound(step.code, step.text, step.where, step.bound_s, step.bound_pct, step.known)
