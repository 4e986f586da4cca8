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

    ``kernel_ops`` are those that any kernel was made of; None in a file of the first release.
    ``moved_bytes`` are those of kernels, by the same keys; ``bytes_known`` says how all of them are
    known. Without figures that are times: another run has others.
    """

    figures: dict[str, float | None] = field(default_factory=dict)
    spreads: dict[str, float] = field(default_factory=dict)  # of those that were sampled
    items: dict[str, int] = field(default_factory=dict)
    kernel_ops: list[str] | None = None
    moved_bytes: dict[str, int] = field(default_factory=dict)
    bytes_known: str | None = None  # "exact" or "estimated"


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
        values = {
            figure.name: figure.read(report)
            for figure in FIGURES.values()
            if figure.in_baseline or figure.name in extra
        }
        found = items_of(report)
        counts = Counter(key for item in found for key in item.keys[:1])
        ops = {op for item in found if item.kind in (KERNEL, EXTERN) for op in item.ops}
        baseline.ranks[str(report.run.rank)] = RankBaseline(
            {name: value.value for name, value in values.items()},
            {name: value.spread for name, value in values.items() if value.spread},
            dict(sorted(counts.items())),
            sorted(ops),
            dict(sorted(_moved_bytes(found).items())),
            FIGURES["kernel_bytes"].read(report).known,
        )
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


def grown_items(found: Iterable[Item], known: RankBaseline) -> list[Item]:
    """Kernels that the baseline has, and that move more bytes than there."""
    every = list(found)
    was = known.moved_bytes
    grown = {key for key, moved in _moved_bytes(every).items() if key in was and moved > was[key]}
    return [item for item in every if item.keys[0] in grown]


def _moved_bytes(found: Iterable[Item]) -> dict[str, int]:
    """In one call of each graph, by key."""
    moved: Counter[str] = Counter()
    for item in found:
        if item.kind in (KERNEL, EXTERN):
            moved[item.keys[0]] += item.moved_bytes
    return dict(moved)


def known_ops(baseline: RankBaseline) -> set[str]:
    """That any kernel of the baseline was made of."""
    if baseline.kernel_ops is not None:
        return set(baseline.kernel_ops)
    # Of the first release: the ops are in the keys alone.
    made_of = (
        key.rpartition(SEPARATOR)[2] for key in baseline.items if key.startswith((KERNEL, EXTERN))
    )
    return {op for ops in made_of for op in ops.split(" + ")}
