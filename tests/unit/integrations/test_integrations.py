"""Our figures among a training's own: seldom enough, and never in its way.

The frameworks' own trainers are in tests/programs/test_trainers.py.
"""

import sys
import threading
from contextlib import suppress
from types import ModuleType, SimpleNamespace

import pytest

from instrumented_backend.integrations import current
from instrumented_backend.integrations.current import Figures

FIGURES = {"graphs": 2.0, "recompiles": 1.0}


class Clock:
    """In the place of the module ``time``; a report takes ``cost_s``."""

    def __init__(self) -> None:
        self.s, self.cost_s, self.taken = 1000.0, 0.0, 0
        self.fails = False

    def monotonic(self) -> float:
        return self.s

    def metrics(self, prefix: str) -> dict[str, float]:
        self.s += self.cost_s
        self.taken += 1
        if self.fails:
            raise ValueError("no report")
        return {prefix + name: value for name, value in FIGURES.items()}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """With a backend that gives `FIGURES`."""
    clock = Clock()
    monkeypatch.setattr(current, "time", clock)
    backend = ModuleType("backend")
    backend.metrics = clock.metrics
    backend.contained = lambda what: suppress(Exception)
    monkeypatch.setitem(sys.modules, "instrumented_backend.backend", backend)
    return clock


# --- How often ----------------------------------------------------------------------------------


def test_a_report_is_not_taken_at_each_step(clock: Clock) -> None:
    figures = Figures("x/")
    assert figures.new() == {"x/graphs": 2.0, "x/recompiles": 1.0}
    for _ in range(1000):
        clock.s += 0.009
        assert figures.new() is None
    clock.s += 1.1
    assert figures.new() is not None and clock.taken == 2


def test_one_that_takes_long_is_taken_seldom(clock: Clock) -> None:
    """At most 0.1 % of the run: after 2 s, 2,000 s."""
    clock.cost_s = 2.0
    figures = Figures("")
    figures.new()
    clock.s += 1999
    assert figures.new() is None
    clock.s += 2
    assert figures.new() is not None


def test_there_is_time_for_the_last(clock: Clock) -> None:
    figures = Figures("")
    figures.new()
    assert figures.new() is None and figures.new(last=True) == FIGURES


def test_the_latest_for_who_asks_for_each(clock: Clock) -> None:
    figures = Figures("")
    assert [figures.latest() for _ in range(18)] == 18 * [FIGURES]
    assert clock.taken == 1


def test_a_thread_does_not_wait_for_another(clock: Clock) -> None:
    figures = Figures("")
    taking, go_on = threading.Event(), threading.Event()

    def slow(prefix: str) -> dict[str, float]:
        taking.set()
        assert go_on.wait(60)
        return dict(FIGURES)

    sys.modules["instrumented_backend.backend"].metrics = slow
    thread = threading.Thread(target=figures.new)
    thread.start()
    assert taking.wait(60)
    assert figures.new(last=True) is None and figures.latest() == {}
    go_on.set()
    thread.join()
    assert figures.latest() == FIGURES


def test_without_the_backend_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is not imported for that, nor is Dynamo."""
    monkeypatch.delitem(sys.modules, "instrumented_backend.backend", raising=False)
    assert Figures("").new() == {}
    assert "instrumented_backend.backend" not in sys.modules


def test_a_failure_of_ours_is_ours(clock: Clock) -> None:
    clock.fails = True
    assert Figures("").new() == {}


# --- Hugging Face -------------------------------------------------------------------------------


@pytest.mark.full  # importing transformers takes seconds
def test_the_trainers_loggers_get_them_and_nobody_else(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import PrinterCallback, TrainerCallback

    from instrumented_backend.integrations import transformers as ours

    class Logger(TrainerCallback):
        def __init__(self) -> None:
            self.logged: list[dict[str, float]] = []

        def on_log(self, args, state, control, logs=None, model=None, **kwargs) -> None:
            assert model == "the model"
            self.logged.append(logs)

    class Failing(Logger):
        def on_log(self, *args: object, **kwargs: object) -> None:
            raise OSError("no network")

    monkeypatch.setattr(ours, "_LOGGERS", (Failing, Logger))
    logger, printer = Logger(), PrinterCallback()
    printer.on_log = lambda *args, **kwargs: pytest.fail("it is printed")
    trainer = SimpleNamespace(callback_handler=SimpleNamespace())
    callback = ours.InstrumentedCallback(trainer)
    trainer.callback_handler.callbacks = [Failing(), logger, printer, callback]
    state = SimpleNamespace(is_world_process_zero=True)
    for logs in ({"loss": 1.0}, {"loss": 0.5}, {"train_runtime": 9.0}):
        callback.on_log(None, state, None, logs=logs, model="the model")
    prefixed = {f"instrumented/{name}": value for name, value in FIGURES.items()}
    assert logger.logged == [prefixed, prefixed]
    state.is_world_process_zero = False
    callback.on_log(None, state, None, logs={"train_runtime": 9.0}, model="the model")
    assert clock.taken == 2


@pytest.mark.full
def test_the_loggers_that_the_trainer_knows() -> None:
    from transformers.integrations import TensorBoardCallback

    from instrumented_backend.integrations.transformers import _LOGGERS

    assert TensorBoardCallback in _LOGGERS


# --- OpenTelemetry ------------------------------------------------------------------------------


def test_instruments(clock: Clock) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Sum

    from instrumented_backend.integrations.opentelemetry import export
    from instrumented_backend.views.metrics import METRICS

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    export(provider)
    values = {}
    for _ in range(2):
        (resource,) = reader.get_metrics_data().resource_metrics
        (scope,) = resource.scope_metrics
        for metric in scope.metrics:
            values[metric.name] = metric.data.data_points[0].value
            assert isinstance(metric.data, Sum) and metric.data.is_monotonic
            assert metric.description
    assert values == {"instrumented.graphs": 2.0, "instrumented.recompiles": 1.0}
    assert clock.taken == 1  # for all of them, and both times
    assert {metric.is_count for metric in METRICS} == {True, False}
    provider.shutdown()
