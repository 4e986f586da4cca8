"""For OpenTelemetry: each figure as an instrument, read whenever its reader collects.

    export()  # once; where the figures go is the program's own MeterProvider's business

The extra ``otel`` installs what it needs.
"""

from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter

from instrumented_backend import __version__
from instrumented_backend.integrations.current import Figures
from instrumented_backend.views.metrics import METRICS

PREFIX = "instrumented."


def export(provider: MeterProvider | None = None) -> None:
    """Make the instruments: counters for what only grows, gauges for the rest.

    Without a ``provider``, the process's own.
    """
    meter = get_meter("instrumented_backend", __version__, provider)
    figures = Figures(PREFIX)
    for metric in METRICS:
        create = (
            meter.create_observable_counter if metric.is_count else (meter.create_observable_gauge)
        )
        name = PREFIX + metric.name
        create(name, [_reader(figures, name)], unit=metric.unit, description=metric.meaning)


def _reader(figures: Figures, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(_: CallbackOptions) -> Iterable[Observation]:
        value = figures.latest().get(name)
        return [] if value is None else [Observation(value)]

    return read
