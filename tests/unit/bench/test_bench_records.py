"""Figures and notes of a benchmark's rows, computed by hand."""

import pytest

from instrumented_backend.records import KernelRecord
from instrumented_backend.records.bench import (
    ALONE,
    IN_GRAPH,
    BenchRecord,
    Peak,
    Timing,
    explain,
    timing_of,
)


def test_quartiles() -> None:
    # Of 1, 2, 3, 4, 10: the middle one, and the ones between it and the ends.
    assert timing_of([10, 1, 3, 2, 4]) == Timing(ms=3, min_ms=1, p25_ms=2, p75_ms=4, samples=5)
    # Of two, a quarter of the way is 1 + (3 - 1) / 4.
    assert timing_of([3, 1]) == Timing(ms=2, min_ms=1, p25_ms=1.5, p75_ms=2.5, samples=2)
    with pytest.raises(ValueError, match="no samples"):
        timing_of([])


def record(
    ms: float, total_bytes: int | None, flops: int | None = None, **peak: object
) -> BenchRecord:
    given = {"device": "cuda", "device_name": "G", "copy_gb_per_s": 1000.0, "copy_bytes": 1 << 30}
    return BenchRecord(
        KernelRecord("k", "triton", total_bytes=total_bytes, flops=flops),
        timing=Timing(ms, ms, ms, ms, 9),
        peak=Peak(**{**given, "cache_bytes": 50_000_000, **peak}),  # type: ignore[arg-type]
    )


def said(row: BenchRecord) -> list[str]:
    return [note.text for note in explain(row)]


def test_rates() -> None:
    row = record(0.5, 100_000_000, 2_000_000)
    assert row.gb_per_s == pytest.approx(200)  # 0.1 GB in half a millisecond
    assert row.gflop_per_s == pytest.approx(4)
    assert row.share_of(800) == pytest.approx(25)
    assert record(0.5, None).gb_per_s is None and record(0.5, None).share_of(800) is None


def test_what_shares_are_compared_with() -> None:
    measured = record(1, 1).peak
    known = record(1, 1, datasheet_gb_per_s=3352.0).peak
    assert measured is not None and (measured.gb_per_s, measured.source) == (1000, "measured copy")
    assert known is not None and (known.gb_per_s, known.source) == (3352, "datasheet")


def test_faster_than_memory_is_explained() -> None:
    # 40 MB in 10 µs are 4000 GB/s, four times a copy.
    assert said(record(0.01, 40_000_000)) == [
        "faster than memory: its 40 MB stay in the cache of 50 MB"
    ]
    (note,) = said(record(0.01, 60_000_000))
    assert note.startswith("faster than a copy (1000 GB/s): part of the bytes")
    assert said(record(0.01, 60_000_000, device="cpu")) == [note]
    fill = record(0.05, 60_000_000, device="cpu")
    fill.kernel.read_bytes = 0
    assert said(fill) == [
        "faster than a copy (1000 GB/s): it reads next to nothing, and writing alone is faster"
    ]


def test_a_time_alone_says_what_an_empty_cache_costs() -> None:
    row = record(0.1, 40_000_000)
    row.timed, row.cold = ALONE, Timing(0.12, 0.12, 0.12, 0.12, 9)
    (note,) = said(row)
    assert note.endswith("again and again on the same data; with an empty cache it takes 0.12 ms")
    row.cold = Timing(0.109, 0.109, 0.109, 0.109, 9)  # less than a tenth more
    assert said(row) == []
    row.timed, row.cold = IN_GRAPH, Timing(0.2, 0.2, 0.2, 0.2, 9)
    assert said(row) == []


def test_an_unsteady_time_is_said_to_be_one() -> None:
    row = record(1, 60_000_000)
    row.timing = Timing(ms=1, min_ms=0.9, p25_ms=0.94, p75_ms=1.05, samples=9)
    assert said(row) == ["unsteady: half of the samples took 0.94 to 1.05 ms"]
    row.timing = Timing(ms=1, min_ms=0.9, p25_ms=0.96, p75_ms=1.05, samples=9)
    assert said(row) == []
