"""A run of a program whose truth is known: its report, and what the program and its oracle know."""

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truth_programs.run import EAGER, FIRST

from proof.figures import nearest

OP = "aten::"
EXACT_ROWS = ("startup", "compile", "captured", "data")
Pair = tuple[float | None, float]  # ours and the truth


@dataclass
class Run:
    """One run's report, and what the program and the oracle know of it."""

    report: dict[str, Any]
    truth: dict[str, Any]
    eager: Counter[str]  # by the oracle
    captured_ops: int
    gpu: dict[str, Any] | None = None  # by `gpu_oracle`, with CUDA
    # By `looking`: how much longer eager work takes where each of its ops is seen.
    slower: float = 1.0

    @property
    def pct_time(self) -> float | None:
        pct: float | None = self.report["summary"]["pct_time"]
        return pct

    def clocked_us(self, op: str) -> float | None:
        """By the program's own clock, of an op all of whose calls are long."""
        seconds = self.truth["spent_s"].get(op)
        return None if seconds is None else 1e6 * seconds

    @property
    def all_clocked_us(self) -> float:
        ops = (name for name in self.truth["spent_s"] if name.startswith(OP))
        return sum(self.clocked_us(op) or 0.0 for op in ops)

    @property
    def captured_us(self) -> float:
        return float(self.report["ops"]["captured"]["time_us"])

    @property
    def eager_us(self) -> float:
        return float(self.report["ops"]["total_time_us"]) - self.captured_us

    def ops_pair(self, what: str) -> Pair:
        summary = self.report["summary"]
        captured, total = summary["captured_ops"], summary["total_ops"]
        if what == "captured ops":
            return captured, self.captured_ops
        known = captured is not None and total is not None
        return (total - captured if known else None), self.eager.total()

    def op_shares(self) -> dict[str, float]:
        """Of all op time, in percent, by the op's name."""
        return {record["op"]: self._share(record) for record in self.report["ops"]["eager"]}

    def line_shares(self) -> dict[str, float]:
        return {_place(record): self._share(record) for record in self.report["ops"]["missing"]}

    def op_times(self) -> dict[str, float]:
        """Microseconds."""
        return {record["op"]: record["time_us"] for record in self.report["ops"]["eager"]}

    def line_times(self) -> dict[str, float]:
        return {_place(record): record["time_us"] for record in self.report["ops"]["missing"]}

    def line_counts(self) -> dict[str, float]:
        """In percent of all calls of the op."""
        return {
            _place(record): 100 * record["count"] / self.eager[record["op"]]
            for record in self.report["ops"]["missing"]
            if self.eager[record["op"]]
        }

    def _share(self, record: dict[str, Any]) -> float:
        share: float | None = record.get("op_time_pct")
        if share is not None:
            return share
        return float(record["share_pct"] * (100 - (self.pct_time or 0)) / 100)

    def op_counts(self) -> dict[str, Pair]:
        counts = {record["op"]: record["count"] for record in self.report["ops"]["eager"]}
        return {op: (counts.get(op, 0), self.eager[op]) for op in {**counts, **self.eager}}

    def call_means_us(self) -> dict[tuple[int, str], tuple[float, int]]:
        """By graph and direction, what a call takes, and how many there were.

        Without the longest, which may be the first, or have met a garbage collection.
        """
        found = {}
        for graph in self.report["graphs"]:
            for direction, calls, longest in (
                ("forward", graph["calls"], graph["longest_call_us"]),
                ("backward", graph["backward_calls"], graph["longest_backward_us"]),
            ):
                if calls > 1 and longest is not None:
                    mean_us = (graph[f"{direction}_time_us"] - longest) / (calls - 1)
                    found[graph["graph"], direction] = mean_us, calls
        return found

    # --- The ledger -----------------------------------------------------------------------------

    @property
    def wall_s(self) -> float | None:
        wall_s: float | None = self.report.get("ledger", {}).get("wall_s")
        return wall_s

    def ledger(self) -> dict[str, dict[str, Any]]:
        rows = self.report.get("ledger", {}).get("rows", [])
        return {row["row"]: row for row in rows if row["threads"] == "main"}

    def ledger_pct(self, row: str) -> float | None:
        """Of the main thread; "compile" of all, as torch's clock has it."""
        seconds = self.seconds(row)
        if row == "compile" and seconds is not None:
            seconds += self._others_compile_s()
        return self._pct(seconds)

    def _others_compile_s(self) -> float:
        rows = self.report["ledger"]["rows"]
        others = (row for row in rows if row["threads"] == "other" and row["row"] == "compile")
        return sum(row["seconds"] or 0.0 for row in others)

    def spread_pct(self, row: str) -> float | None:
        return self._pct(self.ledger().get(row, {}).get("spread_s"))

    def true_pct(self, row: str) -> float | None:
        """By the program's own clock; None where it has none for that row."""
        truth = self.truth
        seconds = {
            "startup": truth["startup_s"],
            "compile": truth["compile_s"],
            "data": truth["spent_s"].get("data", 0.0),
            "captured": truth["main_graphs_s"],
        }.get(row)
        return None if seconds is None else 100 * seconds / (self.wall_s or truth["wall_s"])

    def seconds(self, row: str) -> float | None:
        seconds: float | None = self.ledger().get(row, {}).get("seconds")
        return seconds

    def sampled_pct(self, row: str, eager_s: float) -> float | None:
        """What `eager_ops` or `python` is, where eager ops took so long: `python` is the rest.

        Another run's shares tell less: machines compile now faster, now slower.
        """
        eager_pct = self._pct(eager_s)
        if row == "eager_ops" or eager_pct is None:
            return eager_pct
        known = [self.true_pct(name) or self.ledger_pct(name) for name in EXACT_ROWS]
        elsewhere_pct = self._pct(self._others_compile_s()) or 0.0
        return 100 - eager_pct - (sum(filter(None, known)) - elsewhere_pct)

    def explained_pct(self) -> float | None:
        seconds = [row["seconds"] for row in self.ledger().values()]
        return self._pct(sum(filter(None, seconds))) if seconds else None

    def least_pct(self) -> float | None:
        known = [row["seconds"] for row in self.ledger().values() if row["seconds"] is not None]
        return self._pct(min(known)) if known else None

    # --- The GPU ledger -------------------------------------------------------------------------

    def gpu_row(self) -> dict[str, Any]:
        (row,) = self.report["gpu"]["gpus"] or [{}]
        return dict(row)

    @property
    def gpu_is_bound(self) -> bool:
        """The host was a step ahead at the end, or more; or it waited, while the GPU was busy."""
        assert self.gpu is not None
        return bool(self.gpu["host"]["turns_ahead"] > 1 or self.gpu["kernels"]["busy"] > 0.5)

    def gpu_truths(self) -> tuple[float, float]:
        """The captured share of its timeline, in percent, from the least to the most.

        A clock of the host's is inside of what is ours, and another one round it. Kernels alone are
        less than a graph has a busy GPU, and their share of all kernels' time is more, where the
        GPU is idle now and then.
        """
        assert self.gpu is not None
        least_s = self.truth["graphs_s"]
        most_s = least_s + self.truth["clock_s"]
        if self.truth["clock"] == "HostClock" and self.gpu_is_bound:
            part_s, kernels = dict(self.truth["part_s"]), self.gpu["kernels"]
            # What was waited for at the end is of the part that ran last.
            part_s[list(part_s)[-1]] += self.truth["spent_s"]["synchronize"]
            least_s = most_s = self.gpu["host"]["first_s"]
            for part, seconds in part_s.items():
                later = self.truth["parts"][part] - FIRST
                least_s += later * kernels["each_s"].get(part, 0.0)
                most_s += seconds * kernels["shares"].get(part, 0.0)
        timeline_s = self.report["gpu"]["timeline_s"]
        least, most = sorted((100 * least_s / timeline_s, 100 * most_s / timeline_s))
        return least, most

    def gpu_pair(self) -> Pair:
        """Against the nearest of what it can be."""
        ours = self.gpu_row().get("captured_pct")
        return ours, self.gpu_truths()[0] if ours is None else nearest(ours, *self.gpu_truths())

    def sleep_pct(self) -> float:
        sleep_s: float = self.truth["spent_s"].get("sleep", 0.0)
        return 100 * sleep_s / (self.wall_s or self.truth["wall_s"])

    def _pct(self, seconds: float | None) -> float | None:
        return None if seconds is None or not self.wall_s else 100 * seconds / self.wall_s


def _place(record: dict[str, Any]) -> str:
    return f"{record['op']} at {Path(record['file'] or '?').name}:{record['line']}"


def run_of(folder: Path, oracle: dict[str, Any]) -> Run:
    """Of the files that a measured process left."""
    from truth_programs.measured import TRUTH
    from truth_programs.oracle import captured_of, eager_of

    truth = json.loads((folder / TRUTH).read_text())
    (report,) = folder.glob("report.*.json")
    parts = truth["parts"]
    return Run(
        json.loads(report.read_text()),
        truth,
        eager_of(oracle, parts),
        captured_of(oracle, parts),
        oracle.get("gpu"),
        oracle.get("slower", 1.0),
    )


@dataclass
class EagerTimes:
    """What eager ops took in `always`, as fast as the run in question was.

    Processes differ in speed, each as a whole, by more than we may be off: how much, the calls of
    their graphs tell. What was captured is exact in each run, and so are ops with a clock of their
    own: how long the host waits for a GPU in one is no matter of the host's speed.
    """

    always: list[Run]

    def captured_pct(self, run: Run) -> float:
        """Of all op time."""
        return 100 * run.captured_us / self._total_us(run)

    def pct(self, run: Run, times: Callable[[Run], dict[str, float]], name: str) -> float:
        took_us = run.clocked_us(name.partition(" at ")[0])
        if took_us is None:
            took_us = self._median(run, lambda other: times(other).get(name, 0.0))
        return 100 * took_us / self._total_us(run)

    def ledger_s(self, run: Run) -> float:
        """Seconds of the ledger's row; NaN where it is not known."""
        clocked_s = 1e-6 * run.all_clocked_us
        return clocked_s + self._median(run, lambda o: _eager_s(o) - 1e-6 * o.all_clocked_us)

    def _total_us(self, run: Run) -> float:
        others_us = self._median(run, lambda other: other.eager_us - other.all_clocked_us)
        return run.captured_us + run.all_clocked_us + others_us

    def _median(self, run: Run, value: Callable[[Run], float]) -> float:
        return statistics.median(value(other) * _times_slower(run, other) for other in self.always)


def _eager_s(run: Run) -> float:
    seconds = run.seconds("eager_ops")
    return math.nan if seconds is None else seconds


def _times_slower(run: Run, other: Run) -> float:
    """How much longer its eager ops take than the other's: there may be more of them, too."""
    lasted, others_lasted = run.truth["spent_s"].get(EAGER), other.truth["spent_s"].get(EAGER)
    if lasted and others_lasted:  # by the clock, however fast it is; less of the other's is ops
        return float(lasted / (others_lasted / other.slower))
    ours, others = run.call_means_us(), other.call_means_us()
    both = {key: mean for key, mean in ours.items() if others.get(key)}
    # Each graph's calls weigh as much as they take.
    total_us = sum(mean * calls for mean, calls in both.values())
    slower = sum(
        mean * calls / total_us * (mean / others[key][0]) for key, (mean, calls) in both.items()
    )
    return (slower or 1.0) * run.eager.total() / max(1, other.eager.total())
