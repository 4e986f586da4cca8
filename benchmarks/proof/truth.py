"""What reports say of programs whose truth is known (`truth_programs`), run after run."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from proof.figures import Figure, nearest
from proof.truth_run import EXACT_ROWS, EagerTimes, Pair, Run

POINTS = 2.0  # of shares
OPS_PCT, COUNT_PCT = 1.0, 2.0
LISTED_PCT = 1.0  # an op's share of op time from which on its own figures count
EXPLAINED_PCT = 98.0
SAMPLED_ROWS = ("eager_ops", "python")
TRUTH_HEADERS = ("program", "figure", "mode", "ours", "truth", "off by", "worst", "limit", "")


@dataclass
class Row(Figure):
    """The median run, by how far ours is from the truth, and how far the worst run's is."""

    worst: float | None = None

    @property
    def cells(self) -> list[str]:
        cells = super().cells
        return [*cells[:6], "-" if self.worst is None else f"{self.worst:.2f}", *cells[6:]]


def rows_of(program: str, runs: dict[str, list[Run]]) -> Iterator[Row]:
    """Of one program; ``runs`` by mode. What only `always` can tell is compared with its median."""
    always = runs["always"]
    listed = sorted(
        op
        for op, share in _medians([run.op_shares() for run in always]).items()
        if share >= LISTED_PCT
    )
    for mode, its_runs in runs.items():

        def row(
            figure: str,
            pair_of: Callable[[Run], Pair],
            limit: float,
            in_points: bool = False,
            mode: str = mode,
            its_runs: list[Run] = its_runs,
        ) -> Row:
            pairs = [pair_of(run) for run in its_runs]
            return row_of(program, figure, mode, pairs, limit, in_points)

        for what in ("captured ops", "eager ops"):
            yield row(what, lambda run, what=what: run.ops_pair(what), OPS_PCT)
        yield from _worst(
            row(f"count of {op}", lambda run, op=op: run.op_counts().get(op, (0, 0)), COUNT_PCT)
            for op in listed
        )
        if mode != "always":
            yield from _against_always(row, always, listed)
        yield from _of_ledger(row, mode, always)
        if always[0].gpu is not None:
            yield row("GPU: captured, %", Run.gpu_pair, POINTS, True)
            yield row("GPU: right verdict", _verdict, 0)


MakeRow = Callable[..., Row]


def _verdict(run: Run) -> Pair:
    verdict = run.gpu_row().get("verdict")
    # A GPU with little to do may wait for its host, or for another rank's: the oracle cannot tell.
    right = verdict == "GPU-bound" if run.gpu_is_bound else verdict not in ("GPU-bound", None)
    return float(right), 1.0


def _against_always(row: MakeRow, always: list[Run], listed: list[str]) -> Iterator[Row]:
    """Shares of op time, which need a clock round each op."""
    times = EagerTimes(always)
    yield row("op time, %", lambda run: (run.pct_time, times.captured_pct(run)), POINTS, True)
    yield from _worst(
        row(
            f"{op}, %",
            lambda run, op=op: (run.op_shares().get(op, 0.0), times.pct(run, Run.op_times, op)),
            POINTS,
            True,
        )
        for op in listed
    )
    lines = _medians([run.line_shares() for run in always])
    counts = _medians([run.line_counts() for run in always])
    places = [place for place, share in lines.items() if share >= LISTED_PCT]
    yield from _worst(
        row(
            f"{place}, %",
            lambda run, place=place: (
                run.line_shares().get(place, 0.0),
                times.pct(run, Run.line_times, place),
            ),
            POINTS,
            True,
        )
        for place in places
    )
    yield from _worst(
        row(
            f"calls of {place}, %",
            lambda run, place=place: (run.line_counts().get(place, 0.0), counts[place]),
            COUNT_PCT,
        )
        for place in places
        if place in counts
    )


def _of_ledger(row: MakeRow, mode: str, always: list[Run]) -> Iterator[Row]:
    """The main thread's rows, as shares of the wall time."""
    for name in EXACT_ROWS:
        yield row(
            f"ledger: {name}, %",
            lambda run, name=name: (run.ledger_pct(name), run.true_pct(name)),
            POINTS,
            True,
        )
    if mode != "always":
        times = EagerTimes(always)
        for name in SAMPLED_ROWS:
            yield row(
                f"ledger: {name}, %",
                lambda run, name=name: (
                    run.ledger_pct(name),
                    run.sampled_pct(name, times.ledger_s(run)),
                ),
                POINTS,
                True,
            )
    # A sleep is Python's time.
    yield row(
        "ledger: python, and what slept, %",
        lambda run: _nearest(run.ledger_pct("python"), run.sleep_pct()),
        POINTS,
        True,
    )
    yield row(
        "ledger: explained, %",
        lambda run: _nearest(run.explained_pct(), EXPLAINED_PCT, 100.5),
        0,
        True,
    )
    yield row("ledger: least row, %", lambda run: _nearest(run.least_pct(), 0.0), 0, True)
    yield row(
        "ledger: wall, s",
        lambda run: _nearest(run.wall_s, run.truth["wall_s"], run.truth["exit_s"]),
        OPS_PCT,
    )


def row_of(
    program: str,
    figure: str,
    mode: str,
    pairs: Sequence[Pair],
    limit: float,
    in_points: bool = False,
) -> Row:
    """The median of the runs, by the sign of the error too; unknown in one run is unknown."""
    figures = [Row(program, figure, mode, *pair, limit, in_points) for pair in pairs]
    errors = [one.error for one in figures]
    unknown = next((one for one in figures if one.error is None), None)
    if unknown is not None:
        return unknown
    figures.sort(key=_signed_error)
    median = figures[(len(figures) - 1) // 2]
    median.worst = max(error for error in errors if error is not None)
    return median


def _signed_error(row: Row) -> float:
    assert row.ours is not None and row.error is not None
    return row.error if row.ours > row.oracle else -row.error


def _worst(rows: Iterator[Row]) -> Iterator[Row]:
    """The one that is farthest from its truth, if there is one."""
    found = list(rows)
    if found:
        yield max(found, key=lambda row: float("inf") if row.error is None else row.error)


def _nearest(value: float | None, low: float, high: float = float("inf")) -> Pair:
    return value, low if value is None else nearest(value, low, high)


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    """By name; what a run has not is 0 there."""
    names = {name: None for run in runs for name in run}
    return {name: statistics.median([run.get(name, 0.0) for run in runs]) for name in names}
