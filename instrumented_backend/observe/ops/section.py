"""The report's section `ops`: what the graphs have captured, against what ran eagerly."""

from collections.abc import Mapping, Sequence

from instrumented_backend.observe.native.keys import region_key
from instrumented_backend.observe.native.structs import RegionRow
from instrumented_backend.observe.ops.estimate import Estimate, Sampled
from instrumented_backend.observe.ops.gaps import gap_records
from instrumented_backend.observe.ops.lines import Line
from instrumented_backend.observe.ops.observed import Observed
from instrumented_backend.observe.ops.spread import SPREAD
from instrumented_backend.records import (
    CapturedRecord,
    EagerOpRecord,
    GraphRecord,
    MissingRecord,
    Note,
    OpsRecord,
    notes,
)

# Worth saying of time that nothing tells of: seconds, and the part of the run.
UNSEEN_S, UNSEEN = 1.0, 0.05


def ops_unknown(records: Sequence[GraphRecord], reason: str | None) -> OpsRecord:
    """Where there is no op meter."""
    captured = captured_ops(records, {})
    reason = reason or "no op meter: eager ops are unknown"
    return OpsRecord(
        status="unknown",
        observed_pct=None,
        captured=captured,
        total_ops=None,
        total_time_us=None,
        pct_ops_spread=None,
        pct_time_spread=None,
        eager=[],
        missing=[],
        note=reason,
        note_code=notes.OPS_UNKNOWN,
    )


def ops_section(
    records: Sequence[GraphRecord], observed: Observed, found: Estimate, not_counted: str | None
) -> OpsRecord:
    """``not_counted``: why the ops in graphs may be unknown."""
    captured = captured_ops(records, nested_calls(observed))
    captured_us = sum(row.ns for row in observed.regions.values()) / 1e3
    captured.time_us = captured_us
    total_us = captured_us + found.eager.ns / 1e3
    total_ops = None if captured.ops is None else captured.ops + round(found.eager.ops)
    note = _note(observed, found)
    if captured.ops is None and not_counted is not None:
        note = Note(notes.CAPTURED_UNKNOWN, not_counted)
    return OpsRecord(
        status="exact" if found.exact else "sampled",
        observed_pct=_observed_pct(observed),
        captured=captured,
        total_ops=total_ops,
        total_time_us=total_us,
        pct_ops_spread=_share_spread(captured.ops, found.eager.ops, found.eager.ops_error),
        pct_time_spread=_share_spread(
            captured_us, found.eager.ns / 1e3, found.eager.ns_error / 1e3
        ),
        eager=_eager(found, total_us),
        missing=_missing(found, total_us),
        note=None if note is None else note.text,
        note_code=None if note is None else note.code,
        unaccounted_s=None if found.exact else found.unseen_ns / 1e9,
        gaps=gap_records(observed, found),
    )


def captured_ops(records: Sequence[GraphRecord], nested: Mapping[int, int]) -> CapturedRecord:
    """Exact, but for what is ``estimated``; None where a graph that ran could not be counted.

    An operator of the program's can call a compiled function. ``nested`` has, by region key, the
    calls inside another graph's, where they are a part of an op of that one.
    """
    forward = backward = 0
    known = True
    for record in records:
        per_call = record.forward_ops
        calls, backwards = eager_calls(record, nested)
        if record.direction == "backward":  # of compiled autograd
            backward += (per_call or 0) * backwards
        else:
            forward += (per_call or 0) * calls
            backward += (record.backward_ops or 0) * backwards
            known &= not record.backward_calls or record.backward_ops is not None
        known &= per_call is not None or not (record.calls or record.backward_calls)
    return CapturedRecord(
        ops=forward + backward if known else None,
        forward_ops=forward if known else None,
        backward_ops=backward if known else None,
        estimated=sorted({reason for record in records for reason in record.ops_estimated}),
    )


def eager_calls(record: GraphRecord, nested: Mapping[int, int]) -> tuple[int, int]:
    """Forward and backward calls of a graph, those inside of another graph's calls apart."""
    return (
        record.calls - nested.get(region_key(record.graph, False), 0),
        record.backward_calls - nested.get(region_key(record.graph, True), 0),
    )


def nested_calls(observed: Observed) -> dict[int, int]:
    """By region key, the calls inside of another graph's."""
    return {key: row.nested for key, row in observed.regions.items() if row.nested}


def set_region_times(records: Sequence[GraphRecord], regions: Mapping[int, RegionRow]) -> None:
    """The graphs' records get the time in their regions."""
    for record in records:
        forward = regions.get(region_key(record.graph, False))
        backward = regions.get(region_key(record.graph, True))
        if forward is not None and forward.calls:
            record.forward_time_us = forward.ns / 1e3
            record.longest_call_us = forward.longest_ns / 1e3
        if backward is not None and backward.calls:
            record.backward_time_us = backward.ns / 1e3
            record.longest_backward_us = backward.longest_ns / 1e3


def _observed_pct(observed: Observed) -> float | None:
    """Of the time outside regions, how much the windows saw."""
    seen = sum(
        part.seen.ns for kind in observed.kinds for part in (kind.first, *kind.whole, *kind.slices)
    )
    total = observed.before.unseen_ns + sum(kind.own_ns for kind in observed.kinds)
    return 100 * min(1.0, seen / total) if total else None


def _share_spread(captured: float | None, eager: float, error: float) -> float | None:
    """Of c / (c + e), in points: its derivative times the error of e. c is exact."""
    if captured is None or not captured + eager:
        return None
    share = captured / (captured + eager)
    return 100 * min(SPREAD * captured * error / (captured + eager) ** 2, max(share, 1 - share))


def _eager(found: Estimate, total_us: float) -> list[EagerOpRecord]:
    return [
        EagerOpRecord(
            op=name,
            count=round(sums.ops),
            time_us=sums.ns / 1e3,
            share_pct=100 * (sums.ns / (found.eager.ns or 1.0)),
            op_time_pct=_of_op_time(sums, total_us),
            count_spread=0.0 if found.exact else SPREAD * sums.ops_error,
            gpu_time_us=sums.gpu_us,
        )
        for name, sums in sorted(found.by_name.items(), key=_longest_first)
        if sums.ops
    ]


def _missing(found: Estimate, total_us: float) -> list[MissingRecord]:
    return [
        MissingRecord(
            op=name,
            file=line.file,
            line=line.line,
            function=line.function,
            count=max(1, round(sums.ops)),  # a line that was met, by samples of several ops each
            time_us=sums.ns / 1e3,
            share_pct=100 * (sums.ns / (found.eager.ns or 1.0)),
            op_time_pct=_of_op_time(sums, total_us),
            count_spread=SPREAD * sums.ops_error,
            gpu_time_us=sums.gpu_us,
        )
        for (name, line), sums in sorted(found.by_line.items(), key=_longest_first)
        if sums.ops
    ]


def _longest_first(item: tuple[str | tuple[str, Line], Sampled]) -> float:
    return -item[1].ns


def _of_op_time(sums: Sampled, total_us: float) -> float:
    return 100 * (sums.ns / 1e3 / total_us) if total_us else 0.0


def _note(observed: Observed, found: Estimate) -> Note | None:
    unseen_s = found.unseen_ns / 1e9
    if unseen_s > max(UNSEEN_S, UNSEEN * observed.elapsed_ns / 1e9):
        return Note(
            notes.OPS_UNACCOUNTED,
            f"which ops ran in {unseen_s:.1f} s of the run is not known: no window saw anything "
            "like it",
        )
    if observed.lost:
        return Note(
            notes.OPS_TOO_MANY_NAMES,
            f"{observed.lost} eager ops had one of too many names, and are missing",
        )
    return None
