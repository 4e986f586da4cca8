"""Kernels that the windows see, against a torch.profiler of the test's own, on the same program.

The program is a training loop with eager parts between its graphs. It is run in child processes,
since a profiler leaves its process slower.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from paths import BENCHMARKS
from programs import RunProgram

# Before the backend is imported: where one window is looked at, a slow machine has no other.
ONE_WINDOW = """
    from instrumented_backend.observe.device import meter as device
    device.FIRST_INTERVAL_S = 1e6
"""
TRAINING = f"""
    import sys, time, torch
    sys.path.insert(0, {str(BENCHMARKS)!r})
    import workloads
    (step,) = workloads.net("cuda", "instrumented")
    steps = int(sys.argv[1])
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
"""
TRAINING_IN_TEST = TRAINING.replace("\n    ", "\n        ").strip()
PROFILED = f"""{TRAINING}
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        for _ in range(10):
            step()
    found.export_chrome_trace(sys.argv[2])
"""


def test_the_kernels_are_a_profilers(run_program: RunProgram, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    run_program(PROFILED, arguments=("20", str(trace)))
    done = run_program(
        ONE_WINDOW + TRAINING, arguments=("40",), env={"INSTRUMENTED_DEVICE_TIME": "on"}
    )
    found = done.report["ops"]["device"]
    assert "lost" not in done.report["note_codes"], done.report["notes"]
    assert "Profiler clears events" not in done.stderr
    assert (found["status"], found["windows"]) == ("sampled", 1), found
    assert 0 < found["captured_us"] < found["kernel_us"], "or there would be nothing to tell apart"
    share = 100 * found["captured_us"] / found["kernel_us"]
    assert found["pct_captured"] == pytest.approx(share)
    # A window is five whole steps, without what tunes kernels; the profile is ten.
    counts = Counter(
        event["name"]
        for event in json.loads(trace.read_text())["traceEvents"]
        if event.get("cat") == "kernel" and event["name"].startswith("triton_")
    )
    triton = [row for row in found["kernels"] if row["kernel"].startswith("triton_")]
    assert {row["kernel"]: 2 * row["count"] for row in triton} == counts
    assert all(row["captured_count"] == row["count"] for row in triton)
    assert 0 < found["busy_us"] <= found["kernel_us"]
    assert found["busy_us"] <= found["window_us"]
    assert "device time: captured" in done.stderr
    timed = [kernel for kernel in done.report["kernels"] if kernel["device_time_us"]]
    names = {k["kernel_name"] for k in done.report["kernels"] if k["language"] == "triton"}
    assert {k["kernel_name"] for k in timed if k["language"] == "triton"} == names
    assert_externs_are_timed(done.report, trace)


def assert_externs_are_timed(report: dict[str, Any], trace: Path) -> None:
    """Each extern call, by its place in the code, with the kernels that the profile has, too."""
    events = json.loads(trace.read_text())["traceEvents"]
    launched = {event["name"] for event in events if event.get("cat") == "kernel"}
    externs = [kernel for kernel in report["kernels"] if kernel["language"] == "extern"]
    assert any("mm" in kernel["kernel_name"] for kernel in externs)
    assert any("attention" in kernel["kernel_name"] for kernel in externs)
    for kernel in externs:
        assert kernel["extern_positions"], kernel
        (note,) = [note for note in kernel["notes"] if note.startswith("time")]
        assert note.startswith("time: the mean of ") and note.endswith(" calls, in windows"), note
        parts = kernel["library_kernels"]
        assert set(parts) <= launched
        assert kernel["device_time_us"] == pytest.approx(sum(parts.values()))
        count = kernel["device_calls"]
        assert kernel["device_time_total_us"] == pytest.approx(kernel["device_time_us"] * count)


def test_extern_calls_in_cuda_graphs_have_no_time(run_program: RunProgram) -> None:
    """One call launches all the kernels of a graph: which are whose is not in the trace."""
    done = run_program(
        ONE_WINDOW
        + """
    import torch
    layer = torch.nn.Linear(64, 64).cuda()

    def model(x):
        return layer(x).relu() @ x

    compiled = torch.compile(model, backend="instrumented", mode="reduce-overhead")
    x = torch.randn(64, 64, device="cuda")
    with torch.no_grad():
        for _ in range(300):
            compiled(x)
    """,
        env={"INSTRUMENTED_DEVICE_TIME": "on"},
    )
    assert done.report["ops"]["device"]["windows"] == 1
    externs = [kernel for kernel in done.report["kernels"] if kernel["language"] == "extern"]
    assert externs
    for kernel in externs:
        assert kernel["device_time_us"] is None and "time-unknown" in kernel["note_codes"], kernel


def test_every_window_sees_kernels(run_program: RunProgram) -> None:
    """A second window came back empty where CUPTI had been torn down between them."""
    done = run_program(
        f"""
        from instrumented_backend.observe.device import meter as device
        device.FIRST_INTERVAL_S = 0.01
        device.INTERVAL_GROWTH = 1.0
        {TRAINING_IN_TEST}
        from instrumented_backend import backend
        counts = []
        meter = backend._session._device
        for _ in range(4):
            before = sum(t.count for t in meter._seen.totals.kernels.values())
            windows = meter._seen.windows
            while meter._seen.windows == windows:  # due after 10 ms, it opens after 3 steps
                step()
            counts.append(sum(t.count for t in meter._seen.totals.kernels.values()) - before)
        print(min(counts), max(counts))
        """,
        arguments=("20",),
        env={"INSTRUMENTED_DEVICE_TIME": "on"},
    )
    fewest, most = map(int, done.stdout.split()[-2:])
    assert fewest > 0, done.stderr
    assert most == fewest, "windows are as long as each other"


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_the_programs_own_profiler_works(run_program: RunProgram, when: str) -> None:
    first = {"before": 0, "during": 6, "after": 30}[when]
    done = run_program(
        f"""
        from instrumented_backend.observe.device import meter as device
        device.FIRST_INTERVAL_S = 1e6
        import torch
        from torch.profiler import ProfilerActivity, profile
        layer = torch.nn.Linear(64, 64).cuda()
        compiled = torch.compile(lambda x: layer(x).relu().sum(), backend="instrumented")
        x = torch.randn(64, 64, device="cuda")
        def step():
            compiled(x).backward()
        step()
        for _ in range({first}):
            step()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
            for _ in range(10):
                step()
        on_gpu = torch.autograd.DeviceType.CUDA
        events = [(event.name, event.device_type == on_gpu) for event in found.events()]
        kernels = [name for name, here in events if here and name.startswith("triton_")]
        regions = [name for name, here in events if name == "TORCHDYNAMO" and not here]
        print(len(kernels) > 0, len(kernels) % 10, len(regions))
        for _ in range(20):
            step()
        """,
        env={"INSTRUMENTED_DEVICE_TIME": "on"},
    )
    assert done.stdout.split() == ["True", "0", "10"]
    assert "lost" not in done.report["note_codes"], done.report["notes"]
    device = done.report["ops"]["device"]
    if when == "before":  # and after it, none is due for long
        assert device["note"] == "the program's own torch.profiler was running"
    else:
        assert (device["status"], device["windows"]) == ("sampled", 1)
        assert device["kernel_us"] > 0


def test_a_recording_of_the_programs_own_is_left_alone(run_program: RunProgram) -> None:
    """The window that is open when a CUDA graph is recorded must not wait for the GPU."""
    done = run_program(
        """
        import torch
        layer = torch.nn.Linear(64, 64).cuda()
        compiled = torch.compile(lambda x: layer(x).relu() * 2, backend="instrumented")
        x = torch.randn(64, 64, device="cuda")
        from instrumented_backend import backend
        from instrumented_backend.observe.device import meter as device
        device.ENOUGH_S = 0.0
        with torch.no_grad():
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for _ in range(8):  # the fourth opens a window, the ninth would end it
                    expected = compiled(x)
            meter = backend._session._device
            opened = meter._profile is not None
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                for _ in range(3):
                    result = compiled(x)
            still = meter._profile is not None
            graph.replay()
            torch.cuda.synchronize()
            print(opened, still, torch.equal(result, expected))
            compiled(x)
        print(meter._profile is None)
        """,
        env={"INSTRUMENTED_DEVICE_TIME": "on"},
    )
    assert done.stdout.split() == ["True"] * 4
    assert "lost" not in done.report["note_codes"], done.report["notes"]
    assert done.report["ops"]["device"]["windows"] == 1
