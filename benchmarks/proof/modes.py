"""``INSTRUMENTED_OPS=auto`` against ``always``, which sees every op."""

import statistics
import sys
from collections import defaultdict

import click

from proof import child
from proof.figures import Figure

STEPS, ROUNDS = 200, 3
LIMIT = 1  # point
Shares = dict[str, float | None]


def auto_against_always(device: str, steps: int = STEPS) -> list[Figure]:
    """Every percentage of 200 training steps of GPT-2 (12 layers of 256): medians of three runs.

    A process each, taking turns. Of the eager ops' shares, and of the missing lines', the one
    that differs most is shown.
    """
    found: dict[str, list[Shares]] = defaultdict(list)
    modes = ["auto", "always"] * ROUNDS
    with click.progressbar(modes, label="auto and always", file=sys.stderr) as bar:
        for mode in bar:
            found[mode].append(child.call(train, device, steps, INSTRUMENTED_OPS=mode))
    return compare(_medians(found["auto"]), _medians(found["always"]))


def train(device: str, steps: int) -> Shares:
    """In a process with the mode's setting: each percentage in the report, by what it is of."""
    import workloads

    import instrumented_backend

    (step,) = workloads.gpt2(device, "instrumented")
    for _ in range(steps):
        step()
    report = instrumented_backend.report()
    shares: Shares = {
        "ops, %": report.summary.pct_ops,
        "op time, %": report.summary.pct_time,
    }
    for eager in report.ops.eager:
        shares[f"eager {eager.op}, %"] = eager.share_pct
    for missing in report.ops.missing:
        place = f"{missing.op} at {missing.file}:{missing.line}"
        shares[f"missing {place}, %"] = shares.get(f"missing {place}, %", 0) + missing.share_pct
    return shares


def _medians(runs: list[Shares]) -> Shares:
    """An op that a run did not list has no share there."""
    names = {name: None for run in runs for name in run}
    medians: Shares = {}
    for name in names:
        values = [run.get(name, 0.0) for run in runs]
        known = [value for value in values if value is not None]
        medians[name] = statistics.median(known) if len(known) == len(values) else None
    return medians


def compare(auto: Shares, always: Shares) -> list[Figure]:
    """Rows for the summary's shares, and for the worst of each kind of list."""
    rows = {
        name: Figure("gpt2", name, "warm", auto.get(name, 0.0), exact or 0.0, LIMIT, in_points=True)
        for name, exact in {**dict.fromkeys(auto, 0.0), **always}.items()
    }
    chosen = [rows["ops, %"], rows["op time, %"]]
    for kind in ("eager", "missing"):
        some = [row for name, row in rows.items() if name.startswith(f"{kind} ")]
        if some:
            chosen.append(
                max(some, key=lambda row: float("inf") if row.error is None else row.error)
            )
    return chosen
