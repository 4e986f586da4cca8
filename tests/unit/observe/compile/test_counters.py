"""Whose compilation moved which counter."""

import threading
from collections.abc import Iterator

import pytest
import torch

import instrumented_backend
from instrumented_backend.observe import counters as module
from instrumented_backend.observe.counters import CounterLedger, Counts, nested


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counts]:
    """Counters that a test moves by hand."""
    values: Counts = {("inductor", "a"): 5}
    monkeypatch.setattr(module, "read_counters", lambda: dict(values))
    yield values


def bump(values: Counts, by: int) -> None:
    values["inductor", "a"] += by


def test_nested_compilations_are_not_counted_twice(fake: Counts) -> None:
    ledger: CounterLedger[str] = CounterLedger()
    ledger.start()
    outer: Counts = {}
    inner: Counts = {}
    bump(fake, 1)  # outside
    ledger.enter("outer", outer)
    bump(fake, 10)
    ledger.enter("inner", inner)
    assert ledger.current() == "inner"
    bump(fake, 100)
    ledger.leave()
    bump(fake, 1000)
    ledger.leave()
    bump(fake, 10_000)
    ledger.settle()
    assert outer == {("inductor", "a"): 1010}
    assert inner == {("inductor", "a"): 100}
    assert ledger.outside == {("inductor", "a"): 10_001}
    assert ledger.current() is None


def test_what_was_there_before_is_nobodys(fake: Counts) -> None:
    ledger: CounterLedger[str] = CounterLedger()
    ledger.start()
    ledger.settle()
    assert ledger.outside == {}


def test_a_counter_that_the_program_resets(fake: Counts) -> None:
    ledger: CounterLedger[str] = CounterLedger()
    ledger.start()
    counts: Counts = {}
    ledger.enter("graph", counts)
    fake["inductor", "a"] = 2  # 5 → reset → 2
    ledger.leave()
    assert counts == {("inductor", "a"): 2}


def test_work_on_another_thread_goes_to_the_one_that_compiles(fake: Counts) -> None:
    ledger: CounterLedger[str] = CounterLedger()
    ledger.start()
    counts: Counts = {}
    ledger.enter("graph", counts)
    bump(fake, 3)
    thread = threading.Thread(target=ledger.settle)
    thread.start()
    thread.join()
    ledger.leave()
    assert counts == {("inductor", "a"): 3}


def test_trailing_work_is_credited(fake: Counts) -> None:
    ledger: CounterLedger[str] = CounterLedger()
    ledger.start()
    counts: Counts = {}
    bump(fake, 4)
    ledger.credit(counts)
    assert counts == {("inductor", "a"): 4} and ledger.outside == {}


def test_nested() -> None:
    assert nested({("g", "x"): 1, ("g", "y"): 2, ("h", "x"): 3}) == {
        "g": {"x": 1, "y": 2},
        "h": {"x": 3},
    }


def test_a_compilation_inside_a_compilation(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One graph is compiled while Inductor compiles another: each has its own counts."""
    import torch._inductor.compile_fx as inductor
    import torch._inductor.metrics as metrics

    original = inductor.compile_fx_inner
    nested_results = []

    def compile_another_first(gm: torch.fx.GraphModule, inputs: object, **kwargs: object) -> object:
        if not nested_results:
            nested_results.append(None)
            module = torch.fx.symbolic_trace(lambda x: (x.cos() * 3,))
            nested_results[0] = instrumented_backend.instrumented(module, [torch.ones(16)])
        return original(gm, inputs, **kwargs)

    monkeypatch.setattr(inductor, "compile_fx_inner", compile_another_first)
    with torch._inductor.config.patch(force_disable_caches=True):
        before = {name: getattr(metrics, name) for name in metrics.get_metric_fields()}
        torch.compile(lambda x: x.sin().sum(), backend="instrumented")(torch.ones(8))
    report = instrumented_backend.report()
    outer, inner = report.graphs
    assert nested_results[0] is not None
    assert outer.inductor_metrics["generated_kernel_count"] > 0
    assert inner.inductor_metrics["generated_kernel_count"] > 0
    for name, start in before.items():
        moved = getattr(metrics, name) - start
        assert outer.inductor_metrics[name] + inner.inductor_metrics[name] == moved
