"""What the process that runs generated code is asked and tells, as lines of JSON and back."""

import pytest

from instrumented_backend.bench import events
from instrumented_backend.records import KernelRecord, notes
from instrumented_backend.records.bench import BenchRecord, Peak, Timing

KERNEL = KernelRecord("k", "triton", arg_shapes={"in_ptr0": [3, "s0"]}, size_hints={"x": 4})
KERNEL.add_note(notes.TIME, "time: as in the graph")


@pytest.mark.parametrize(
    "event",
    [
        events.PeakMeasured(Peak("cpu", "C", 20.0, 1 << 28)),
        events.DeviceMissing("no CUDA device here"),
        events.Ready(),
        events.Begin(None, "the compiled call"),
        events.Rows(3, "k", [BenchRecord(KERNEL, Timing(1.0, 0.5, 0.75, 1.25, 9), chosen=False)]),
        events.Calls({0: 2, 7: 1}),
        events.WholeCall(Timing(1.0, 0.5, 0.75, 1.25, 9)),
        events.InPlace({3: Timing(1.0, 0.5, 0.75, 1.25, 9)}),
        events.Profile("two\nlines"),
        events.Failed("RuntimeError: no"),
        events.End(),
    ],
)
def test_events(event: events.Event) -> None:
    line = events.to_line(event)
    assert "\n" not in line and events.read_event(line) == event


def test_requests() -> None:
    module = events.ModuleRequest(
        kind="graph",
        path=b"/a/caf\xe9.py",
        device="cpu",
        all_configs=False,
        without_autotune_cache=True,
        profile=False,
        memory_limit_bytes=None,
        resume=3,
        skip=[1, 2],
    )
    for request in (events.PeakRequest("cuda"), module):
        assert events.read_request(events.to_line(request)) == request
