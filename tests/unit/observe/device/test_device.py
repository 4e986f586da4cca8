"""The windows for device time: when they open and close, with a profiler of the test's own."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.autograd import profiler
from traces import annotation, kernel, launch, op, write
from waiting import wait_until

from instrumented_backend.observe.device import meter as device
from instrumented_backend.observe.device.meter import ROUNDS, SETTLING_ROUNDS, DeviceMeter
from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.native.gate import Gate
from instrumented_backend.torch_compat import machine, profilers
from instrumented_backend.traces.op_totals import OpTotal
from instrumented_backend.traces.trace_file import read_trace

FORWARD, BACKWARD = 1, 2  # region keys


class Profile:
    """Each window sees a captured kernel of 8 µs, and one of 2 µs that was not."""

    def __init__(self, happened: list[str]) -> None:
        self._happened = happened

    def __enter__(self) -> None:
        self._happened.append("start")

    def __exit__(self, *exception: object) -> None:
        assert exception == (None, None, None)
        self._happened.append("stop")

    def export_chrome_trace(self, path: str) -> None:
        write(
            Path(path),
            [
                op(0, 100),
                annotation(0, 20, "TORCHDYNAMO"),
                launch(5, 1, 1),
                launch(25, 1, 2),
                kernel(10, 8, "triton_poi_fused_add_0", correlation=1),
                kernel(30, 2, "at::native::eager", correlation=2),
            ],
        )


class Windows:
    """A meter with what it does to the profiler and to the op meter."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.gate = Gate()
        self.failures = Failures()
        self.meter = DeviceMeter(
            self.gate,
            self.failures,
            lambda paused: self.happened.append("pause" if paused else "resume"),
        )

    def rounds(self, count: int) -> None:
        self.calls([FORWARD, BACKWARD] * count)

    def calls(self, keys: list[int]) -> None:
        for key in keys:
            if self.gate.active or self.meter._profile is not None:
                self.meter.enter(key)


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Windows:
    made = Windows()
    monkeypatch.setattr(profilers, "device_profile", lambda: Profile(made.happened))
    monkeypatch.setattr(machine, "synchronize", lambda: None)
    monkeypatch.setattr(machine, "is_capturing", lambda: False)
    monkeypatch.setattr(device, "FIRST_INTERVAL_S", 1e6)
    made.meter._forget()
    return made


def test_ops_go_to_the_graphs_whose_regions_they_are_in(
    windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls are known by thread and order: the marks have no graph in their name."""
    tid = threading.get_native_id()

    def export(profile: Profile, path: str) -> None:
        events = []
        for call in range(2 * ROUNDS):
            name, start = ("aten::bmm" if call % 2 else "aten::mm"), 50 * call
            mark = "TORCHDYNAMO_BACKWARD" if call % 2 else "TORCHDYNAMO"
            events += [
                annotation(start, 20, mark, tid=tid),
                op(start + 1, 10, name, tid=tid),
                launch(start + 2, 1, call + 1, tid=tid),
                kernel(start + 30, 3 + call % 2, "gemm", correlation=call + 1),
            ]
        write(Path(path), events)

    monkeypatch.setattr(Profile, "export_chrome_trace", export)
    windows.meter.want()
    windows.rounds(SETTLING_ROUNDS + ROUNDS + 1)
    found = {key: ops.by_name for key, ops in windows.meter.ops.items()}
    assert found == {
        FORWARD: {"aten::mm": OpTotal(ROUNDS, 3_000 * ROUNDS, {"gemm": 3_000 * ROUNDS})},
        BACKWARD: {"aten::bmm": OpTotal(ROUNDS, 4_000 * ROUNDS, {"gemm": 4_000 * ROUNDS})},
    }


def test_a_window_opens_when_the_loop_has_settled(windows: Windows) -> None:
    assert not windows.gate.active
    windows.meter.want()
    windows.rounds(SETTLING_ROUNDS)
    assert windows.happened == []
    windows.rounds(1)
    assert windows.happened == ["pause", "start"]
    windows.rounds(ROUNDS - 1)
    assert windows.happened == ["pause", "start"]
    windows.rounds(1)
    assert windows.happened == ["pause", "start", "stop", "resume"]
    assert not windows.gate.active, "calls cost nothing until the next window is due"
    found = windows.meter.record({FORWARD: 50, BACKWARD: 50})
    # 5 rounds of 2 calls, of 100.
    assert (found.status, found.windows, found.observed_pct) == ("sampled", 1, 10)
    assert (found.kernel_us, found.captured_us, found.pct_captured) == (10, 8, 80)
    assert (found.busy_us, found.window_us, found.note) == (10, 100, None)
    assert [
        (row.kernel, row.device, row.count, row.time_us, row.share_pct, row.captured_us)
        for row in found.kernels
    ] == [("triton_poi_fused_add_0", 0, 1, 8, 80, 8), ("at::native::eager", 0, 1, 2, 20, 0)]


def test_windows_come_back(windows: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    due: list[tuple[float, Callable[[], None]]] = []

    class Timer(threading.Timer):
        def start(self) -> None:
            due.append((self.interval, self.function))

    monkeypatch.setattr(threading, "Timer", Timer)
    windows.meter._schedule.restart()
    windows.meter.want()
    for _ in range(12):
        windows.rounds(SETTLING_ROUNDS + 1 + ROUNDS)
        due[-1][1]()
    waits = [seconds for seconds, _ in due]
    assert waits[:4] == [10, 20, 40, 80], "each wait is twice the one before"
    assert waits[-1] == 1800, "and half an hour at most"
    assert windows.meter.record({}).windows == 12


def test_the_programs_own_profiler_goes_first(windows: Windows) -> None:
    windows.meter._starting()  # its own is about to begin
    windows.meter.want()
    windows.rounds(SETTLING_ROUNDS + 1)
    assert windows.happened == []
    assert not windows.gate.active
    assert windows.meter.record({FORWARD: 4}).note == "the program's own torch.profiler was running"
    windows.meter._stopped()
    windows.meter.want()
    windows.rounds(SETTLING_ROUNDS + 1)
    assert windows.happened == ["pause", "start"]
    windows.meter._starting()  # in the middle of ours
    assert windows.happened == ["pause", "start", "stop", "resume"]
    assert windows.meter.record({FORWARD: 4}).windows == 1, "what it saw until then counts"


def test_the_programs_own_profiler_on_another_thread(
    windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the main thread to end the window, which no other thread can."""
    windows.meter.want()
    windows.rounds(SETTLING_ROUNDS + 1)
    seen: list[list[str]] = []

    def start() -> None:
        windows.meter._starting()
        seen.append(list(windows.happened))

    monkeypatch.setattr(device, "GIVING_WAY_S", 3600.0)
    thread = threading.Thread(target=start)
    thread.start()
    wait_until(lambda: windows.meter._programs_own)
    windows.rounds(1)
    thread.join()
    assert seen[0][:3] == ["pause", "start", "stop"]
    # Where the main thread calls no graph, the program goes on all the same.
    windows.meter._stopped()
    windows.meter.want()
    windows.rounds(SETTLING_ROUNDS + 1)
    monkeypatch.setattr(device, "GIVING_WAY_S", 0.01)
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert seen[1][-1] == "start"


def test_none_while_a_graph_is_recorded(windows: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "is_capturing", lambda: True)
    windows.meter.want()
    windows.rounds(SETTLING_ROUNDS + 5)
    assert windows.happened == []
    monkeypatch.setattr(machine, "is_capturing", lambda: False)
    windows.rounds(1)
    assert windows.happened == ["pause", "start"]


def test_only_the_main_thread_opens_one(windows: Windows) -> None:
    windows.meter.want()
    thread = threading.Thread(target=windows.rounds, args=(SETTLING_ROUNDS + 5,))
    thread.start()
    thread.join()
    assert windows.happened == []
    assert "main thread" in (windows.meter.record({FORWARD: 8}).note or "")


def test_an_open_window_is_read_at_the_exit(windows: Windows) -> None:
    windows.meter.want()
    windows.rounds(SETTLING_ROUNDS + 2)
    windows.meter.stop()
    assert windows.happened == ["pause", "start", "stop", "resume"]
    assert windows.meter.record({FORWARD: 5, BACKWARD: 5}).observed_pct == 40


def test_a_failure_ends_it(windows: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(Profile):
        def __enter__(self) -> None:
            profiler._run_on_profiler_start()  # as torch's does first
            raise RuntimeError("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS")

    monkeypatch.setattr(profilers, "device_profile", lambda: Failing(windows.happened))
    windows.meter.want()
    windows.rounds(SETTLING_ROUNDS + 5)
    assert windows.happened == ["pause", "resume"], "the op meter goes on"
    assert not windows.gate.active
    assert not profiler._is_profiler_enabled
    [note] = windows.failures.notes
    assert note.text.startswith("lost: device time: RuntimeError: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS")


def test_a_graph_that_is_not_called_again_does_not_hold_it_up(
    windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "LONGEST_WINDOW_CALLS", 10)
    windows.meter.want()
    windows.meter.enter(7)  # called once, and first
    with torch.no_grad():
        windows.calls([FORWARD] * 20)
    assert windows.happened[:2] == ["pause", "start"]


# Of four blocks that share a graph.
STEP = [FORWARD] * 4 + [BACKWARD] * 4


def test_a_round_is_a_step_however_often_it_calls_a_graph(windows: Windows) -> None:
    """As for a graph break in a loop over blocks: a part of a step has another share than it."""
    windows.meter.want()
    windows.calls(STEP * SETTLING_ROUNDS)
    assert windows.happened == []
    windows.calls(STEP * ROUNDS)
    assert windows.happened == ["pause", "start"]
    windows.calls(STEP[:1])
    assert windows.happened == ["pause", "start", "stop", "resume"]
    assert windows.meter._seen.calls == {FORWARD: 4 * ROUNDS, BACKWARD: 4 * ROUNDS}


def test_what_is_recomputed_begins_no_round(windows: Windows) -> None:
    """A checkpointed forward runs again on the autograd engine's own thread."""
    windows.meter.want()
    for _ in range(SETTLING_ROUNDS):
        windows.calls(STEP[:4])
        thread = threading.Thread(target=windows.calls, args=([BACKWARD, FORWARD] * 4,))
        thread.start()
        thread.join()
    assert windows.happened == []
    windows.calls(STEP[:1])
    assert windows.happened == ["pause", "start"]


def test_without_backward_calls_windows_are_longer(
    windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tells how many calls make a step."""
    monkeypatch.setattr(device, "ENOUGH_S", 1e6)
    windows.meter.want()
    with torch.no_grad():
        windows.calls([FORWARD] * (SETTLING_ROUNDS + 1))
        assert windows.happened == ["pause", "start"]
        windows.calls([FORWARD] * (device.ROUNDS_OF_UNKNOWN_STEPS - 1))
        assert windows.happened == ["pause", "start"]
        windows.calls([FORWARD])
        assert windows.happened == ["pause", "start", "stop", "resume"]
        monkeypatch.setattr(device, "ENOUGH_S", 0.0)
        windows.meter.want()
        windows.calls([FORWARD] * (SETTLING_ROUNDS + 1 + ROUNDS))
    assert windows.happened == ["pause", "start", "stop", "resume"] * 2


def test_with_gradients_on_a_backward_is_waited_for(windows: Windows) -> None:
    """In a warm run all is compiled before the first call, of which there may be many in a step."""
    windows.meter.want()
    windows.calls([FORWARD] * (device.PATIENCE_CALLS + 1))
    assert windows.happened == []
    windows.calls([FORWARD])
    assert windows.happened == ["pause", "start"]


def test_a_window_in_which_something_is_compiled_is_lost(windows: Windows) -> None:
    """Inductor tunes new kernels where they are first called, which is inside a region."""
    windows.meter.want()
    windows.rounds(SETTLING_ROUNDS + 2)
    windows.meter.want()  # a graph was compiled
    windows.rounds(1)
    assert windows.happened == ["pause", "start", "stop", "resume"]
    assert windows.meter.record({FORWARD: 6}).windows == 0
    windows.rounds(SETTLING_ROUNDS + 1 + ROUNDS)
    assert windows.happened == ["pause", "start", "stop", "resume"] * 2
    found = windows.meter.record({FORWARD: 15, BACKWARD: 15})
    assert (found.windows, found.observed_pct) == (1, pytest.approx(100 * 5 / 15))


def test_one_that_is_open_when_a_graph_is_recorded_ends_later(
    windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ending it waits for the GPU, which would break the program's recording."""
    windows.meter.want()
    windows.rounds(SETTLING_ROUNDS + 1)
    monkeypatch.setattr(machine, "is_capturing", lambda: True)
    windows.rounds(2 * ROUNDS)
    windows.meter.close()  # for a report
    assert windows.happened == ["pause", "start"]
    monkeypatch.setattr(machine, "is_capturing", lambda: False)
    windows.rounds(1)
    assert windows.happened == ["pause", "start", "stop", "resume"]


def test_a_timer_leaves_an_open_window_alone(windows: Windows) -> None:
    windows.meter.want()
    windows.rounds(SETTLING_ROUNDS + 1)
    windows.meter._again()
    windows.rounds(ROUNDS)
    assert windows.meter.record({FORWARD: 9}).windows == 1


def test_the_window_of_a_machine_without_a_gpu(tmp_path: Path) -> None:
    """torch's real profiler, which says only that there is no CUDA, in its own words."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU; tests/gpu/test_device.py has windows on one")
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with pytest.warns(UserWarning) as theirs, torch.profiler.profile(activities=activities):
        pass
    with pytest.warns(UserWarning) as warned:
        profile = profilers.device_profile()
        with profile:
            torch.ones(2).add(1)
    # torch 2.11 also tells them, and not us, that events are cleared at the end of a cycle.
    assert {str(w.message) for w in warned} <= {str(w.message) for w in theirs}
    profile.export_chrome_trace(str(tmp_path / "window.json"))
    trace = read_trace(tmp_path / "window.json")
    assert trace.has_host_events and not trace.devices


def test_emit_nvtx_keeps_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sets torch's mark of a running profiler, and ends our window only then."""
    for name in ("_prepare_profiler", "_enable_profiler", "_disable_profiler"):

        def pretend(*args: object) -> None:
            """There is no NVTX without CUDA."""

        pretend.__name__ = name
        monkeypatch.setattr(profiler, name, pretend)
    profilers.watch_starts(profiler._run_on_profiler_stop, lambda: None)
    monkeypatch.setattr(profiler, "_is_profiler_enabled", False)
    profiler._run_on_profiler_start()
    profiler._enable_profiler()
    assert profiler._is_profiler_enabled
    profiler._run_on_profiler_stop()
    profiler._prepare_profiler()
    profiler._run_on_profiler_start()
    profiler._prepare_profiler()
    assert not profiler._is_profiler_enabled, "one that is prepared does not run yet"


def test_it_notices_torchs_own_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_prepare_profiler", "_enable_profiler", "_disable_profiler"):
        monkeypatch.setattr(profiler, name, getattr(profiler, name))
    happened: list[str] = []
    profilers.watch_starts(lambda: happened.append("starting"), lambda: happened.append("stopped"))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ones(2).add(1)
    assert happened == ["starting", "starting", "stopped"]
    assert any(event.key == "aten::add" for event in profile.key_averages())
