"""Times by the GPU's clock, from hand-made traces in the place of a profiler's."""

import types
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from traces import GEMM, Event, annotation, copy, kernel, launch, write

from instrumented_backend.bench import gpu_clock, in_place, timing
from instrumented_backend.bench.driver import _Progress, _put_in_place
from instrumented_backend.bench.gpu_clock import COLD, WARM
from instrumented_backend.records import KernelRecord, notes
from instrumented_backend.records.bench import ALONE, IN_GRAPH, BenchRecord, Timing
from instrumented_backend.torch_compat import profilers

SPAN = "instrumented_backend launch "


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What the profiler will have seen, whatever is run; there is no GPU."""
    events: list[Event] = []

    class Profile:
        def __enter__(self) -> "Profile":
            return self

        def __exit__(self, *exception: object) -> None: ...

        def export_chrome_trace(self, path: str) -> None:
            write(Path(path), [*events, annotation(1_000, 1, "the program's")])

    monkeypatch.setattr(profilers, "device_profile", Profile)
    monkeypatch.setattr(profilers, "record_function_fast", lambda: lambda name: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return events


def spans(name: str, *times: float, start: float = 0.0) -> Iterator[Event]:
    """A span of 10 µs for each time in µs of the kernel that is launched in it."""
    for i, time_us in enumerate(times):
        at = start + 10 * i
        yield annotation(at, 5, SPAN + name)
        yield launch(at + 1, 1, int(at) + 1)
        if time_us:
            yield kernel(at + 3, time_us, correlation=int(at) + 1)


def test_what_a_span_launched(traced: list[Event]) -> None:
    traced += [
        *spans("7", 2.0, 3.0),
        *spans("8", 0.0, start=20),  # launched nothing
        annotation(40, 9, SPAN + "9"),
        *(launch(41 + i, 1, 91 + i) for i in range(3)),
        kernel(45, 4, GEMM, correlation=91),
        kernel(50, 1, correlation=92),
        copy(52, 2, correlation=93),
        launch(60, 1, 94),  # between the spans
        kernel(61, 50, correlation=94),
    ]
    found = gpu_clock.times_of(lambda: None)
    assert found == {
        "7": pytest.approx([0.002, 0.003]),
        "8": [0],
        "9": pytest.approx([0.007]),
    }


def test_a_profiler_that_saw_nothing(traced: list[Event]) -> None:
    traced += spans("7", 0.0)
    assert gpu_clock.times_of(lambda: None) == {}


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_clock, "scratch", lambda: torch.zeros(4))
    monkeypatch.setattr(gpu_clock, "_events_ms", lambda function, count: 0.5 + 0 * count)


def test_warm_and_cold(traced: list[Event], no_gpu: None) -> None:
    traced += [*spans(WARM, 2.0, 4.0, 3.0), *spans(COLD, 8.0, 6.0, start=50)]
    warm, cold, said = gpu_clock.time_alone(lambda: None)
    assert cold is not None and said == []
    assert (warm.ms, warm.samples) == (pytest.approx(0.003), 3)
    assert (cold.ms, cold.samples) == (pytest.approx(0.007), 2)


def test_events_where_the_profiler_sees_nothing(traced: list[Event], no_gpu: None) -> None:
    restored: list[int] = []
    record = BenchRecord(KernelRecord("k", "triton"))
    timing.measure_kernel(record, lambda: None, "cuda", lambda: restored.append(1))
    assert record.timing == record.warm == Timing(0.5, 0.5, 0.5, 0.5, 20)
    assert (record.cold, record.timed, restored) == (None, ALONE, [1])
    assert record.note_codes == [notes.TIMED_BY_EVENTS]
    # In calls of its graph the profiler saw it.
    found = {0: Timing(0.3, 0.3, 0.3, 0.3, 5)}
    _put_in_place(_Progress(rows={0: [record]}), found)
    assert (record.timing, record.timed, record.notes) == (found[0], IN_GRAPH, [])


def test_what_takes_no_time_on_the_gpu() -> None:
    nothing, alone = Timing(0, 0, 0, 0, 5), Timing(1, 1, 1, 1, 9)
    extern = BenchRecord(KernelRecord("aten.resize", "extern"), alone)
    on_cpu = BenchRecord(KernelRecord("cpp_fused", "cpp"), alone)
    failed = BenchRecord(KernelRecord("k", "triton"), error="out of memory")
    _put_in_place(_Progress(rows={0: [extern], 1: [on_cpu], 2: [failed]}), {0: nothing, 1: nothing})
    assert (extern.timing, on_cpu.timing, failed.timing) == (nothing, alone, None)


class Graph(types.ModuleType):
    """A module whose calls launch two kernels, the second one twice."""

    def __init__(self, names: list[str]) -> None:
        super().__init__("graph")
        self.names = names
        self.arguments: list[Any] = []
        for name in set(names):
            setattr(self, name, lambda: None)

    def call(self, arguments: list[Any]) -> None:
        self.arguments = arguments
        for name in self.names:
            getattr(self, name)()


@pytest.mark.parametrize("last", ["k_b", "k_a"])
def test_launches_in_their_graph(
    traced: list[Event], monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    marked: list[str] = []
    monkeypatch.setattr(in_place, "span", lambda name: nullcontext(marked.append(name)))
    monkeypatch.setattr(in_place, "_is_large", lambda arguments: False)
    traced += [*spans("0", 2.0, 4.0), *spans("1", 7.0, start=30)]
    graph = Graph(["k_a", "k_b", last])
    course = [(0, "k_a"), (1, "k_b"), (1, "k_b")]
    found = in_place.time_in_place(graph, ["k_a", "k_b"], course, [5])
    assert marked[:6] == ["0", "1", "1"] * 2 and graph.arguments == [5]
    if last == "k_a":
        assert found == {}, "it took another course"
        return
    assert {number: each.ms for number, each in found.items()} == {
        0: pytest.approx(0.003),
        1: pytest.approx(0.007),
    }
