"""What a snapshot of the report has anew, and what it has from the one before."""

import pytest
from current_file import PROGRAM
from programs import RunProgram


@pytest.mark.full
def test_what_is_exact_is_newer_than_what_is_estimated(run_forked: RunProgram) -> None:
    """Estimates keep to their share of the run: then the ledger says of when they are."""
    source = """
    from instrumented_backend import backend
    live = backend._session._live
    wait(lambda known: live.snapshots._asked_s is None and live.snapshots._idle.is_set())
    live._estimates._next_s = live._listings._next_s = float("inf")
    before = report()
    train(5)
    wait(has(8))
    after = report()
    graphs = before["graphs"] + after["graphs"]
    print([graph["calls"] for graph in graphs])
    print(graphs[0]["forward_time_us"] < graphs[1]["forward_time_us"])
    print(before["ledger"] == after["ledger"], before["ops"] == after["ops"])
    live._estimates._next_s = 0.0
    train(1)
    wait(has(9))
    print(report()["ledger"]["wall_s"] > after["ledger"]["wall_s"])
    print(report()["ops"]["captured"]["ops"])
    live._estimates._next_s = live._listings._next_s = float("inf")
    backend.reset()
    train(2)
    wait(lambda known: known["summary"]["graph_calls"] == 2)
    print(report()["ops"]["captured"]["ops"])
    """
    done = run_forked(PROGRAM + source)
    assert done.stdout.splitlines() == ["[3, 8]", "True", "True True", "True", "18", "4"]
    assert done.report["ops"]["captured"]["ops"] == 4
