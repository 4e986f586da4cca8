"""From what the op meter's windows saw to the whole run: sums by name, by line and by thread.

How many gaps there were of each kind, and how long they took, is known for all of the run. What ops
are in them was seen in windows; `scaling.py` has how often each happened.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from instrumented_backend.observe.ops.beside import beside
from instrumented_backend.observe.ops.calibrated import calibrated, windows_of
from instrumented_backend.observe.ops.called import Number
from instrumented_backend.observe.ops.cells import Cell
from instrumented_backend.observe.ops.gpu_seen import GpuSeen
from instrumented_backend.observe.ops.lines import UNKNOWN, Line
from instrumented_backend.observe.ops.loose import loose
from instrumented_backend.observe.ops.observed import Observed
from instrumented_backend.observe.ops.scaled import SMALL_OP_NS, Scaled
from instrumented_backend.observe.ops.scaling import all_scaled
from instrumented_backend.observe.ops.spread import SPREAD

# From `torch.compile` to the first compilation, and from there to the graph's call: so long takes
# what PyTorch does then on a busy machine, where the program itself does next to nothing.
PREPARING_NS = 100_000_000
# Of the time of ops that windows measured: what seeing them adds to it is taken off, but only as
# it is on average. All ops err by it together.
SEEING = 0.07
EXACT = 1e-6  # ops of each gap: what sums of weights are off by is less


@dataclass
class OpSums:
    """Ops and their time, and that of the GPU for those of them of which it is known."""

    ops: float = 0.0
    ns: float = 0.0
    gpu_ops: float = 0.0
    gpu_ns: float = 0.0

    @property
    def gpu_us(self) -> float | None:
        """Of all of them; None where it is not known of any."""
        return self.gpu_ns / 1e3 * (self.ops / self.gpu_ops) if self.gpu_ops else None

    def add_gpu(self, ops: float, mean_ns: float | None) -> None:
        if mean_ns is not None:
            self.gpu_ops += ops
            self.gpu_ns += ops * mean_ns

    def add(self, ops: float, ns: float) -> None:
        self.ops += ops
        self.ns += ns


@dataclass
class Sampled(OpSums):
    """The same, with the variance of each, 0 where all were seen."""

    ops_variance: float = 0.0
    ns_variance: float = 0.0

    @staticmethod
    def of(scaled: Scaled) -> "Sampled":
        """What one part of the run stands for."""
        return Sampled(
            scaled.ops,
            scaled.ns,
            ops_variance=scaled.doubted_ops_variance,
            ns_variance=scaled.doubted_ns_variance,
        )

    def add_share(self, sums: "Sampled", share: float) -> None:
        """Of other sums, ``share`` (0 to 1)."""
        self.add(sums.ops * share, sums.ns * share)
        self.ops_variance += sums.ops_variance * share * share
        self.ns_variance += sums.ns_variance * share * share

    @property
    def ops_error(self) -> float:
        return math.sqrt(self.ops_variance)

    @property
    def ns_error(self) -> float:
        return math.sqrt(self.ns_variance)


@dataclass
class Gaps:
    """All from one mark to another, on the main thread."""

    n: int = 0
    ns: int = 0
    eager: Sampled = field(default_factory=Sampled)
    by_line: dict[tuple[str, Line], float] = field(default_factory=dict)  # nanoseconds


@dataclass
class Estimate:
    """The run's totals."""

    exact: bool
    eager: Sampled = field(default_factory=Sampled)
    main_ns: Sampled = field(default_factory=Sampled)  # of the main thread, data loading apart
    other_ns: Sampled = field(default_factory=Sampled)  # of other threads, data loading apart
    unseen_ns: float = 0.0  # in gaps that nothing that was seen is like
    data_ns: tuple[int, int] = (0, 0)  # in DataLoaders: on the main thread, on others
    by_name: defaultdict[str, Sampled] = field(default_factory=lambda: defaultdict(Sampled))
    by_line: defaultdict[tuple[str, Line], Sampled] = field(
        default_factory=lambda: defaultdict(Sampled)
    )
    by_place: defaultdict[tuple[int, Line], OpSums] = field(
        default_factory=lambda: defaultdict(OpSums)
    )
    """By the region that was called last, and line."""
    by_gap: defaultdict[tuple[int, int], Gaps] = field(default_factory=lambda: defaultdict(Gaps))
    """By the number of the mark at which they begin, and what they end at."""


def estimate(observed: Observed) -> Estimate:
    result = Estimate(exact=observed.whole and not observed.lost)
    lines = _Lines(observed)
    data_ns = [0, 0]
    groups = list(all_scaled(observed.kinds, observed.gpu.is_waited_for))
    without_marks = list(loose(observed))
    everything = [*(each for _, _, scaled in groups for each in scaled), *without_marks]
    known = {} if result.exact else observed.called.numbers
    windows = windows_of(everything, known)
    times = {name: each.times(known[name].ops) for name, each in windows.items() if each.like}
    for number, group, scaled in groups:
        mark = observed.marks[number]
        on_main = group.ns[0] / sum(group.ns) if sum(group.ns) else 1.0
        gaps = result.by_gap[number, group.to]
        gaps.n, gaps.ns = gaps.n + group.n[0], gaps.ns + group.ns[0]
        for each in calibrated(scaled, times, group.own_ns):
            _add(result, each, lines, mark.region, gaps.by_line if on_main else None, observed.gpu)
            sums = Sampled.of(each)
            result.eager.add_share(sums, 1.0)
            gaps.eager.add_share(sums, on_main)
            if not mark.in_data:
                result.main_ns.add_share(sums, on_main)
                result.other_ns.add_share(sums, 1 - on_main)
        if not any(each.part.seen.n for each in scaled):
            _add_unseen(result, group.ns, on_main)
        if mark.in_data:
            for i in range(2):
                data_ns[i] += group.ns[i]
    for each in calibrated(without_marks, times, math.inf):
        _add(result, each, lines, 0, None, observed.gpu)
        sums = Sampled.of(each)
        result.eager.add_share(sums, 1.0)
        result.other_ns.add_share(sums, 1.0)
    tell = {name: sum(each) if each.like else 0.0 for name, each in windows.items()}
    told = beside(result.by_name, result.by_line, tell)
    if told:
        others = sum(sums.ops for name, sums in result.by_name.items() if name not in known)
        left = 1 - sum(result.by_name[name].ops for name in told) / others
        result.eager.ops_variance *= left**2
    _settle(result, _no_less(result, known))
    gaps_ns = sum(sum(group.ns) for _, group, _ in groups)
    _settle(result, told, max(0.0, gaps_ns - result.eager.ns))
    if not result.exact:
        result.eager.ops_variance += (observed.called.unknown / SPREAD) ** 2
    if observed.before.unseen_ns:
        _add_unseen(result, (observed.before.unseen_ns, 0), 1.0)
    result.eager.ops_variance += (_most_ops(result) / SPREAD) ** 2
    if not result.exact:
        for sums in (result.eager, result.main_ns, result.other_ns):
            sums.ns_variance += (SEEING * sums.ns / SPREAD) ** 2
    result.data_ns = data_ns[0], data_ns[1]
    return result


def _no_less(result: Estimate, known: Mapping[str, Number]) -> dict[str, Number]:
    """Than was seen, of those that were."""
    ops = {name: result.by_name[name].ops for name in known}
    return {
        name: Number(max(number.ops, ops[name]), number.error)
        for name, number in known.items()
        if ops[name]
    }


def _settle(result: Estimate, numbers: Mapping[str, Number], most_ns: float = math.inf) -> None:
    """Numbers that are known: what was uncertain is on which of its lines each op was.

    Where nothing but itself stood for what was seen, it stands for all. ``most_ns``: by how much
    longer all ops may take.
    """
    more = {name: number.ops / result.by_name[name].ops - 1 for name, number in numbers.items()}
    more_ns = sum(times * result.by_name[name].ns for name, times in more.items())
    share = most_ns / more_ns if more_ns > most_ns else 1.0
    threads_ns = result.main_ns.ns + result.other_ns.ns
    on_main = result.main_ns.ns / threads_ns if threads_ns else 1.0
    for name, times in more.items():
        before = result.by_name[name]
        lines = [sums for (of_name, _), sums in result.by_line.items() if of_name == name]
        ops, ns = times * before.ops, share * times * before.ns
        result.eager.add(ops, ns)
        result.main_ns.add(ops * on_main, ns * on_main)
        result.other_ns.add(ops * (1 - on_main), ns * (1 - on_main))
        for each in (before, *lines):
            each.add(times * each.ops, share * times * each.ns)
    of_lines: defaultdict[str, float] = defaultdict(float)
    for (name, _), sums in result.by_line.items():
        of_lines[name] += sums.ops_variance
    for (name, _), sums in result.by_line.items():
        if name in numbers:
            part = sums.ops / result.by_name[name].ops
            own = sums.ops_variance
            others = of_lines[name] - own
            sums.ops_variance = (1 - part) ** 2 * own + part**2 * others
            sums.ops_variance += (part * numbers[name].error) ** 2
    for name, number in numbers.items():
        result.by_name[name].ops_variance = number.error**2
    # What a line's ops have wrong they have wrong together.
    result.eager.ops_variance += sum(number.error for number in numbers.values()) ** 2


# --- Adding up ----------------------------------------------------------------------------------


class _Lines:
    """On which lines the ops of a cell were."""

    def __init__(self, observed: Observed) -> None:
        self._lines = observed.lines

    def of(self, cell: Cell) -> list["_Share"]:
        if len(cell.lines) == 1 and cell.count:  # nearly always
            (number,) = cell.lines
            return [_Share(self._line(number), 1.0, 1.0)]
        all_ops, all_ns = (sum(sums[i] for sums in cell.lines.values()) for i in range(2))
        if not all_ops:
            return [_Share(UNKNOWN, 1.0, 1.0)]
        return [
            _Share(
                self._line(number),
                sums.ops / all_ops,
                sums.ns / all_ns if all_ns else sums.ops / all_ops,
                sums.ops_variance / all_ops**2,
            )
            for number, sums in cell.lines.items()
        ]

    def _line(self, number: int) -> Line:
        return self._lines[number] if number < len(self._lines) else UNKNOWN


class _Share(NamedTuple):
    """Of a cell's ops, those on one line: of their number, and of their time."""

    line: Line
    ops: float
    ns: float
    ops_variance: float = 0.0  # by samples of lines


def _add_unseen(result: Estimate, each_ns: tuple[int, int], on_main: float) -> None:
    """What nothing is like may be ops or not: two standard errors are all of it."""
    ns = sum(each_ns)
    result.unseen_ns += ns
    result.eager.ns_variance += (ns / SPREAD) ** 2
    result.main_ns.ns_variance += (ns * on_main / SPREAD) ** 2
    result.other_ns.ns_variance += (ns * (1 - on_main) / SPREAD) ** 2


def _most_ops(result: Estimate) -> float:
    """In time that nothing tells of: as many as were in as much time of gaps.

    But of time that PyTorch alone does not take until the first call, as many as go into it.
    """
    long_ns = max(0.0, result.unseen_ns - PREPARING_NS)
    gaps_ns = sum(gaps.ns for gaps in result.by_gap.values())
    each_ns = gaps_ns / result.eager.ops if result.eager.ops else 0.0
    return (result.unseen_ns - long_ns) / max(each_ns, SMALL_OP_NS) + long_ns / SMALL_OP_NS


def _add(
    result: Estimate,
    scaled: Scaled,
    lines: _Lines,
    region: int,
    in_gap: dict[tuple[str, Line], float] | None,
    gpu: GpuSeen,
) -> None:
    seen, turns, counts = scaled.part.seen, scaled.part.turns, scaled.part.counts
    for cell in scaled.part.cells:
        times = scaled.times.get(cell.name, 1.0)
        ops, ns = (
            times * cell.count * scaled.ops_factor,
            times * cell.time_ns * scaled.ns_factor,
        )
        # As uncertain as all of the part is, and all of a name together; and besides, an op that is
        # not in each of the gaps was in those that were seen by chance.
        own, of_name = cell.count / (seen.ops or 1.0), counts[cell.name] / (seen.ops or 1.0)
        variance = scaled.ops_variance * own * of_name
        each = turns[cell.name, cell.turn] / max(1.0, seen.n)
        if scaled.ops_factor > 1 and not math.isclose(each, round(each), abs_tol=EXACT):
            variance += scaled.ops_factor * (scaled.ops_factor - 1) * cell.count
        variance = times**2 * (variance + scaled.clump_of(cell))
        named = result.by_name[cell.name]
        named.add(ops, ns)
        named.ops_variance += variance
        gpu_mean_ns = gpu.mean_ns(cell.mark, cell.slot, cell.name)
        named.add_gpu(ops, gpu_mean_ns)
        for share in lines.of(cell):
            line, line_ops, line_ns = share.line, ops * share.ops, ns * share.ns
            on_line = result.by_line[cell.name, line]
            on_line.add(line_ops, line_ns)
            on_line.ops_variance += variance * share.ops + share.ops_variance * ops * ops
            on_line.add_gpu(line_ops, gpu_mean_ns)
            result.by_place[region, line].add(line_ops, line_ns)
            if in_gap is not None:
                in_gap[cell.name, line] = in_gap.get((cell.name, line), 0.0) + line_ns
    if scaled.doubts:
        _add_doubts(result, scaled, lines)


def _add_doubts(result: Estimate, scaled: Scaled, lines: _Lines) -> None:
    """What the numbers of ops may differ by, those of gaps that may be among these."""
    parts = [scaled.part, *(doubt.others for doubt in scaled.doubts)]
    counts: defaultdict[str, float] = defaultdict(float)
    for name, count in (named for part in parts for named in part.counts.items()):
        counts[name] += count
    doubts = {name: scaled.doubt_of(name) for name in counts}
    for name, variance in doubts.items():
        result.by_name[name].ops_variance += variance
    for cell in (cell for part in parts for cell in part.cells):
        variance = doubts[cell.name] * cell.count / counts[cell.name]
        for share in lines.of(cell):
            result.by_line[cell.name, share.line].ops_variance += variance * share.ops
