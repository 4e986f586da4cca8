"""The results as text, no wider than 80 columns."""

import itertools
import statistics
import textwrap
from collections.abc import Sequence

from tabulate import tabulate

from opbench.results import (
    OperatorResult,
    Run,
    Sample,
    by_operator,
    ratios,
    speedup_text,
)

WIDTH = 80
_NARROWEST_NAME = 20
_GAP = 2  # between columns
_MOST_LISTED = 5


def operator_block(result: OperatorResult, backends: Sequence[str]) -> str:
    """What is printed when an operator is done: its name, and the quantiles of each speedup."""
    of = _count(len(result.samples), "sample")
    lines = [f"{result.operator}: {len(result.timed)} of {of} timed"]
    for backend in backends[1:]:
        values = result.speedups(backend)
        if values:
            lines.append(speedup_text(backend, values))
    lines += [
        line
        for sample in result.samples
        if sample.complaint
        for line in _wrap(f"sample {sample.sample}: {sample.complaint}", "  ")
    ]
    return "\n".join(lines)


def summary(run: Run) -> str:
    """The table of operators, what was not measured and why, and how the figures are read."""
    results = by_operator(run.samples)
    parts = [_table(results, run.settings["backends"])] if results else []
    parts.append(_legend(run))
    if run.skipped_operators:
        lines = [f"not measured ({_count(len(run.skipped_operators), 'operator')}):"]
        for name, reason in run.skipped_operators.items():
            lines += _wrap(f"{name}: {reason}", "  ")
        parts.append("\n".join(lines))
    wrong = [sample for sample in run.samples if sample.complaint]
    if wrong:
        lines = [f"failed ({len(wrong)} of {_count(len(run.samples), 'sample')}):"]
        for sample in wrong:
            lines += _wrap(f"{sample.operator} sample {sample.sample}: {sample.complaint}", "  ")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _table(results: list[OperatorResult], backends: Sequence[str]) -> str:
    first, others = backends[0], backends[1:]
    rows = []
    for result in results:
        row = [_bare(result.operator), str(len(result.timed))]
        row.append(_time(_median(result.timed, first, "median_us")))
        for backend in others:
            values = result.speedups(backend)
            row.append("" if values is None else _factor(values[1]))
        last = backends[-1]
        row.append(_number(_median(result.timed, last, "gb_per_s"), "{:.3g}"))
        row.append(_number(_median(result.timed, last, "pct_of_peak"), "{:.0f}"))
        rows.append(row)
    header = ["operator", "n", first, *(_cut(name, 12) for name in others), "GB/s", "% peak"]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    widths[0] = max(
        _NARROWEST_NAME, min(widths[0], WIDTH - sum(widths[1:]) - _GAP * len(widths[1:]))
    )
    for row in rows:
        row[0] = _cut(row[0], widths[0])
    # The header goes in as a row: as a header, tabulate would pad each column by two.
    return tabulate(
        [header, ["-" * width for width in widths], *rows],
        tablefmt="plain",
        disable_numparse=True,
        colalign=("left", *("right",) * (len(header) - 1)),
    )


def _legend(run: Run) -> str:
    first, last = run.settings["backends"][0], run.settings["backends"][-1]
    machine = run.machine
    lines = _wrap(
        f"Medians over n samples. {first}: time of one call; the others: speedup over it. GB/s and "
        f"% of peak: {last}'s; the peak is what a large copy ({machine['peak_gb_per_s']:.3g} GB/s) "
        f"or a large matrix product ({_number(machine['peak_gflop_per_s'], '{:.4g}')} GFLOP/s, "
        f"{machine['peak_dtype']}) reached in this run; above 100 % the data fitted in a cache."
    )
    compiled = sorted(name for name in run.settings["backends"] if name != "eager")
    for one, other in itertools.combinations(compiled, 2):
        lines += _ratio_lines(run.samples, other, one)
    lines += _wrap(
        f"torch {machine['torch']}, Python {machine['python']}, {machine['device']}, "
        f"{_count(machine['threads'], 'thread')}"
    )
    lines += [line for note in run.notes for line in _wrap(note)]
    lines += _slower_in_graphs(run.samples)
    return "\n".join(lines)


def _slower_in_graphs(samples: list[Sample]) -> list[str]:
    """A speedup over eager that is a CUDA graph's doing is not to be taken for the compiler's."""
    found = [
        f"{_bare(sample.operator)} sample {sample.sample}: {name} "
        f"{_time(timing.median_us)}, outside {_time(timing.outside_graph_us)}"
        for sample in samples
        for name, timing in sample.backends.items()
        if timing.outside_graph_us is not None
    ]
    if not found:
        return []
    more = f"; {len(found) - _MOST_LISTED} more in the files" if len(found) > _MOST_LISTED else ""
    listed = "; ".join(found[:_MOST_LISTED]) + more
    return _wrap(f"Slower in a CUDA graph than outside, as copies are: {listed}.")


def _ratio_lines(samples: list[Sample], of: str, to: str) -> list[str]:
    found = ratios(samples, of, to)
    if len(found) < 2:
        return []
    low, median, high = statistics.quantiles(found, n=4)
    added = statistics.median(
        sample.backends[of].median_us - sample.backends[to].median_us
        for sample in samples
        if of in sample.backends and to in sample.backends
    )
    return _wrap(
        f"Time of {of} over {to}: median {median:.3f}, quartiles {low:.3f} .. {high:.3f}; "
        f"median difference {added:.2f} us; {_count(len(found), 'sample')}."
    )


def _median(samples: list[Sample], backend: str, name: str) -> float | None:
    values = [
        value
        for sample in samples
        if backend in sample.backends
        and (value := getattr(sample.backends[backend], name)) is not None
    ]
    return statistics.median(values) if values else None


def _time(microseconds: float | None) -> str:
    if microseconds is None:
        return ""
    for unit, factor in (("us", 1.0), ("ms", 1e3), ("s", 1e6)):
        if microseconds < 1000 * factor or unit == "s":
            return f"{microseconds / factor:.3g} {unit}"
    raise AssertionError


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _factor(value: float) -> str:
    return f"{value:.2f}x" if value < 100 else f"{value:.0f}x"


def _bare(name: str) -> str:
    return name.removeprefix("aten.").removesuffix(".default")


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else name[: width - 3] + "..."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _wrap(text: str, indent: str = "") -> list[str]:
    """The rest of a line is indented, so that it cannot be taken for another line."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ")
