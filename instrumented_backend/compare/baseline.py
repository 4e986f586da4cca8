"""A baseline: what a program came to once, in a file that is small and reviewed like code."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from instrumented_backend.compare.figures import FIGURES
from instrumented_backend.compare.functions import program_of
from instrumented_backend.compare.items import EXTERN, KERNEL, SEPARATOR, Item, items_of
from instrumented_backend.compare.limits import CheckError
from instrumented_backend.records import Report, ReportError, bounded
from instrumented_backend.records.escapes import without_surrogates
from instrumented_backend.records.whole_file import write_whole

VERSION = 1
MAX_BYTES = 1 << 26


@dataclass
class RankBaseline:
    """Of one process. ``items`` are the keys of its causes and how many have each.

    Without figures that are times: another run has others.
    """

    figures: dict[str, float | None] = field(default_factory=dict)
    items: dict[str, int] = field(default_factory=dict)


@dataclass
class Baseline:
    baseline_version: int
    program: str  # the script's name
    torch: str
    device: str
    ranks: dict[str, RankBaseline] = field(default_factory=dict)


def baseline_of(reports: Iterable[Report], extra: Iterable[str] = ()) -> Baseline:
    """``extra`` are figures that are compared with it beside those that always are."""
    every = list(reports)
    first = every[0]
    baseline = Baseline(VERSION, program_of(first), first.run.torch, first.run.device)
    for report in every:
        figures = {
            figure.name: figure.read(report).value
            for figure in FIGURES.values()
            if figure.in_baseline or figure.name in extra
        }
        counts = Counter(key for item in items_of(report) for key in item.keys[:1])
        baseline.ranks[str(report.run.rank)] = RankBaseline(figures, dict(sorted(counts.items())))
    return baseline


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Raises OSError."""
    import msgspec

    data = without_surrogates(msgspec.to_builtins(baseline))
    write_whole(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def read_baseline(path: Path) -> Baseline:
    """Raises `CheckError`."""
    from instrumented_backend.records.decoding import convert

    try:
        data = bounded.parse(bounded.decoded(bounded.light(bounded.read_bytes(path, MAX_BYTES))))
    except FileNotFoundError:
        raise CheckError(f"{path}: no such baseline; --update writes it") from None
    except OSError as error:
        raise CheckError(f"{path}: cannot be read: {error.strerror}") from None
    except bounded.NotReadable as error:
        raise CheckError(f"{path}: not a baseline: {error}") from None
    if not isinstance(data, dict) or "baseline_version" not in data:
        is_report = isinstance(data, dict) and "schema_version" in data
        what = "a report" if is_report else "something else"
        raise CheckError(f"{path}: not a baseline, but {what}; --update writes one")
    if data["baseline_version"] != VERSION:
        raise CheckError(
            f"{path}: baseline_version is {data['baseline_version']!r}; this version reads "
            f"{VERSION} only: write it again with --update"
        )
    try:
        return convert(data, Baseline)
    except ReportError as error:
        raise CheckError(f"{path}: not a baseline: {error}") from None


def new_items(found: Iterable[Item], known: RankBaseline) -> list[Item]:
    """Those that the baseline does not have, or has fewer of."""
    left = Counter(known.items)
    new = []
    for item in found:
        key = item.keys[0]
        if left[key] > 0:
            left[key] -= 1
        else:
            new.append(item)
    return new


def known_ops(baseline: RankBaseline) -> set[str]:
    """That any kernel of the baseline was made of."""
    made_of = (
        key.rpartition(SEPARATOR)[2] for key in baseline.items if key.startswith((KERNEL, EXTERN))
    )
    return {op for ops in made_of for op in ops.split(" + ")}
