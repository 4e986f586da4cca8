from pathlib import Path

import pytest
from traces import kernel, launch, op, write

from instrumented_backend.traces.launches import find_launches
from instrumented_backend.traces.trace_file import read_trace


def launched(path: Path) -> list[float | None]:
    """For each activity, when the call began that launched it, in µs."""
    launches = find_launches(read_trace(path))
    known = launches.known.tolist()
    return [
        start / 1e3 if is_known else None
        for start, is_known in zip(launches.start.tolist(), known, strict=True)
    ]


def test_by_correlation_id_in_any_order(tmp_path: Path) -> None:
    events = [
        kernel(50, 1, correlation=9),
        launch(20, 5, 7),
        op(0, 100),
        kernel(60, 1, correlation=7),
        launch(10, 5, 9),
        launch(30, 5, 8),
        # As under CUDA graphs: one call, several kernels.
        kernel(70, 1, correlation=8),
        kernel(80, 1, correlation=8),
        # No id, an id without a call, and no call's missing id is theirs.
        kernel(90, 1),
        kernel(91, 1, correlation=99),
        {**launch(40, 5, 0), "args": {}},
    ]
    path = write(tmp_path / "t.json", events)
    assert launched(path) == [10, 20, 30, 30, None, None]


def test_ids_shared_by_several_processes(tmp_path: Path) -> None:
    """In merged traces each process counts from the start: the last call before it began."""
    events = [
        op(0, 1),
        launch(10, 2, 5, pid=100),
        launch(30, 2, 5, pid=200),
        launch(30, 2, 6, pid=200),
        kernel(15, 1, correlation=5),
        kernel(35, 1, correlation=5),
        # Before every call with its id, as where clocks differ by a little: the first of them.
        kernel(9, 1, correlation=5),
        # An earlier id's call must not be taken for it.
        kernel(20, 1, correlation=6),
        kernel(40, 1, correlation=6),
    ]
    path = write(tmp_path / "t.json", events)
    assert launched(path) == [10, 30, 10, 30, 30]


@pytest.mark.parametrize("events", [[launch(0, 1, 1)], [kernel(0, 1, correlation=1)], [op(0, 1)]])
def test_one_side_missing(tmp_path: Path, events: list[dict[str, object]]) -> None:
    path = write(tmp_path / "t.json", events)
    assert all(start is None for start in launched(path))
