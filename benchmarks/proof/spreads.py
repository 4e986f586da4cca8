"""Do the spreads that are printed hold?"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from proof.figures import nearest
from proof.truth import LISTED_PCT, Row
from proof.truth_run import EagerTimes, Run

INSIDE_PCT = 95.0
ROUNDING = 0.05  # of shares, in points
ALL = "all programs"


@dataclass
class Spreads:
    """How often the truth lay inside the spread that was printed, in `auto`, over all programs.

    The truth of a time is what the runs in `always` gave, from the least to the most; of runs that
    saw all that ran, none is asked for.
    """

    inside: dict[str, list[bool]] = field(default_factory=dict)

    def add(self, runs: list[Run], always: list[Run]) -> None:
        for run in runs:
            ops = run.report["ops"]
            total = run.captured_ops + run.eager.total()
            ops_pct = run.report["summary"]["pct_ops"]
            self._add("ops, %", ops_pct, [100 * run.captured_ops / total], ops["pct_ops_spread"])
            for record in ops["eager"]:
                if run.op_shares()[record["op"]] >= LISTED_PCT:
                    true = [float(run.eager[record["op"]])]
                    self._add("count of an op", record["count"], true, record.get("count_spread"))
            if run.gpu is not None:
                ours, spread = (run.gpu_row().get(f"{name}_pct") for name in ("captured", "spread"))
                self._add("GPU captured, %", ours, list(run.gpu_truths()), spread)
            if ops["status"] == "exact":
                continue  # it saw all: by what its times differ from other runs', the machine does
            times = [EagerTimes([other]).captured_pct(run) for other in always]
            self._add("op time, %", run.pct_time, times, ops["pct_time_spread"])
            # What is sampled is how eager ops and Python share what the exact rows leave.
            eager = [EagerTimes([other]).ledger_s(run) for other in always]
            known = [run.sampled_pct("eager_ops", each) for each in eager]
            ours = run.ledger_pct("eager_ops")
            self._add("ledger of eager ops, %", ours, known, run.spread_pct("eager_ops"))

    def _add(
        self, what: str, ours: float | None, true: list[float | None] | list[float], spread: Any
    ) -> None:
        known = [value for value in true if value is not None]
        if ours is None or not known:
            inside = False
        else:
            off = abs(ours - nearest(ours, min(known), max(known)))
            inside = off <= (spread or 0.0) + ROUNDING
        self.inside.setdefault(what, []).append(inside)

    def rows(self) -> Iterator[Row]:
        for what, inside in self.inside.items():
            pct = 100 * sum(inside) / len(inside)
            oracle = nearest(pct, INSIDE_PCT, 100)
            yield Row(ALL, f"{what}: truth in spread, % of {len(inside)}", "auto", pct, oracle, 0)
