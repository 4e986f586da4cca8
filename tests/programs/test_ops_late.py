"""Loops that begin late in a program: after a compilation, or far apart."""

import pytest
from programs import RunProgram

LATE = """
    import torch
    def loop(function, op, times):
        y = torch.ones(8)
        for _ in range(times):
            function(y)
            for _ in range(20):
                y = op(y)
    training = torch.compile(lambda x: x.sin() + 1, backend="instrumented")
    evaluation = torch.compile(lambda x: x.cos() + 1, backend="instrumented")
    loop(training, torch.neg, 3000)
    loop(evaluation, torch.erf, 30)
    loop(training, torch.neg, 300)
"""


def test_a_graph_that_is_compiled_late_is_seen(run_forked: RunProgram) -> None:
    """When what windows may cost was spent on the loop before."""
    done = run_forked(LATE)
    rows = {row["op"]: row for row in done.report["ops"]["eager"]}
    assert rows["aten::erf"]["count"] == 30 * 20
    # Of a step that the machine holds up for long a slice is seen, which may tell of more ops.
    within = max(0.01 * 3300 * 20, 2 * rows["aten::neg"]["count_spread"])
    assert rows["aten::neg"]["count"] == pytest.approx(3300 * 20, abs=within)


def test_a_graph_is_seen_that_is_compiled_before_the_window_was_found_to_be_enough(
    run_forked: RunProgram,
) -> None:
    """The loop before is known, and the one after is not."""
    seldom = """
    from instrumented_backend.observe.ops import meter
    meter.POLL_S = meter.LONGEST_POLL_S = 3600.0
    """
    done = run_forked(f"{seldom}{LATE}")
    rows = {row["op"]: row for row in done.report["ops"]["eager"]}
    assert rows["aten::erf"]["count"] == 30 * 20


@pytest.mark.full
def test_an_evaluation_that_chance_does_not_meet(run_forked: RunProgram) -> None:
    """It may cost nothing, and what it may not see is looked at, once a look is due."""
    done = run_forked("""
        import torch
        from instrumented_backend import backend
        from instrumented_backend.observe.ops import meter, work
        meter.BUDGET, meter.ALWAYS_AFFORDABLE_S = 1e-9, 0.0
        compiled = torch.compile(lambda x: x.sin() * 2, backend="instrumented")
        x = torch.randn(64)
        def evaluate():
            count = 0
            before = work.done(backend._session.ops._lib).ops
            while count < 20_000 or work.done(backend._session.ops._lib).ops == before:
                for _ in range(1_000):
                    x.tanh()
                count += 1_000
            for _ in range(count):
                x.tanh()
            return 2 * count
        count = 0
        for step in range(120_000):
            compiled(x).add(1)
            if step % 60_000 == 59_999:
                count += evaluate()
        compiled(x)
        print(count)
    """)
    assert done.report["ops"]["status"] == "sampled"
    (tanh,) = (record for record in done.report["ops"]["eager"] if record["op"] == "aten::tanh")
    count = int(done.stdout)
    assert count / 3 < tanh["count"] < count * 3
