"""The ledger's rows, on values made by hand."""

from typing import Any

import pytest

from instrumented_backend.observe.ledger import ledger, ledger_without_meter, process_age_s
from instrumented_backend.observe.native.structs import Seen, TimeRow
from instrumented_backend.observe.ops.estimate import Estimate, Sampled
from instrumented_backend.observe.ops.observed import Before, Observed, Part
from instrumented_backend.records import notes

S = 10**9


def observed(elapsed_s: float, **times: int) -> Observed:
    loose = Part(Seen(), []), Part(Seen(), [])
    row = TimeRow(**{name: value * S for name, value in times.items()})
    return Observed([], [], loose, {}, row, [], False, int(elapsed_s * S))


def found(exact: bool = False, main_s: float = 0.0, error_s: float = 0.0, **more: Any) -> Estimate:
    main = Sampled(ns=main_s * S, ns_variance=(error_s * S) ** 2)
    return Estimate(exact, main_ns=main, **more)


def test_rows_add_up_to_the_wall_time() -> None:
    # 100 s observed after 20 s: 30 compiling, 40 captured, 10 of data. Of the 20 left, 15 in ops.
    made = ledger(
        observed(100, main_compile_ns=30, main_captured_ns=40),
        found(main_s=15, error_s=1.5, data_ns=(10 * S, 0)),
        20.0,
    )
    assert made.wall_s == pytest.approx(120) and made.note is None
    rows = {row.row: (row.seconds, row.share_pct, row.spread_s, row.status) for row in made.rows}
    expected = {
        "startup": (20, 100 / 6, 0, "exact"),
        "compile": (30, 25, 0, "exact"),
        "captured": (40, 100 / 3, 0, "exact"),
        "eager_ops": (15, 12.5, 3, "sampled"),  # two standard errors
        "data": (10, 25 / 3, 0, "exact"),
        "python": (5, 25 / 6, 3, "sampled"),
    }
    assert list(rows) == list(expected)
    for name, (*values, status) in expected.items():
        assert rows[name] == (*map(pytest.approx, values), status)
    assert {row.threads for row in made.rows} == {"main"}
    assert sum(row.seconds or 0 for row in made.rows) == pytest.approx(made.wall_s)


def test_what_the_program_waited_for_our_own_part_is_start_up() -> None:
    # Of 100 s observed after 20 s, 8 waiting; 30 compiling; of the 62 left, 15 in ops.
    seen = observed(100, main_compile_ns=30)
    seen.before = Before(waited_ns=8 * S)
    made = ledger(seen, found(main_s=15), 20.0)
    assert made.wall_s == pytest.approx(120)
    assert made.seconds("startup") == pytest.approx(28)
    assert made.seconds("python") == pytest.approx(47)


def test_ops_take_no_more_than_the_clock_allows() -> None:
    made = ledger(observed(10, main_captured_ns=6), found(main_s=1600), 0.0)
    assert made.seconds("eager_ops") == pytest.approx(4)
    assert made.seconds("python") == pytest.approx(0)


def test_more_than_the_wall_time() -> None:
    """Threads of the engine that work at once for the main thread."""
    made = ledger(observed(10, main_captured_ns=12), found(main_s=3), 0.0)
    assert (made.seconds("eager_ops"), made.seconds("python")) == (0, 0)


def test_all_seen() -> None:
    made = ledger(observed(10), found(exact=True, main_s=3, error_s=1), 0.0)
    assert {(row.status, row.spread_s) for row in made.rows} == {("exact", 0.0)}


def test_other_threads() -> None:
    made = ledger(
        observed(10, other_compile_ns=1, other_captured_ns=2),
        found(other_ns=Sampled(ns=30 * S, ns_variance=float(S) ** 2), data_ns=(0, 4 * S)),
        0.0,
    )
    others = [row for row in made.rows if row.threads == "other"]
    assert [(row.row, row.seconds, row.share_pct, row.spread_s, row.status) for row in others] == [
        ("compile", pytest.approx(1), None, 0.0, "exact"),
        ("captured", pytest.approx(2), None, 0.0, "exact"),
        ("eager_ops", pytest.approx(30), None, pytest.approx(2), "sampled"),
        ("data", pytest.approx(4), None, 0.0, "exact"),
    ]
    # They are thread-seconds, and no part of the wall time.
    assert made.seconds("python") == pytest.approx(10)
    assert made.seconds("captured", "other") == pytest.approx(2)


def test_no_time_at_all() -> None:
    made = ledger(observed(0), found(), 0.0)
    assert {row.share_pct for row in made.rows} == {None}
    assert {row.seconds for row in made.rows} == {0.0}


def test_the_age_of_this_process() -> None:
    age = process_age_s()
    assert age is not None and age > 0


@pytest.mark.parametrize("text", ["", "1 (a) b) S 1 2", "1 (x) S " + "y " * 40])
def test_an_age_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    import io

    from instrumented_backend.observe import ledger as module

    monkeypatch.setattr(module, "open", lambda *_, **__: io.StringIO(text), raising=False)
    assert process_age_s() is None


def test_without_an_op_meter_wall_time_and_compilation_are_known() -> None:
    made = ledger_without_meter(startup_s=2.0, elapsed_s=8.0, compile_s=5.0)
    assert made.wall_s == 10 and made.note_code == notes.OPS_UNKNOWN
    known = {row.row: row.share_pct for row in made.rows if row.status == "exact"}
    assert known == {"startup": 20, "compile": 50}
    unknown = [row.row for row in made.rows if row.status == "unknown"]
    assert unknown == ["captured", "eager_ops", "data", "python"]
    assert all(made.seconds(row) is None for row in unknown)
    # Several threads may compile at once.
    assert ledger_without_meter(2.0, 8.0, 30.0).seconds("compile") == 8
