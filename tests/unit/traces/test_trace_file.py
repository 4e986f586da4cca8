import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from paths import DATA
from traces import annotation, copy, event, kernel, launch, op, write

from instrumented_backend.traces.trace_file import Device, TraceError, read_trace


def spans(part: Any) -> list[tuple[int, int]]:
    return list(zip(part.start.tolist(), part.end.tolist(), strict=True))


def test_times_in_ns_from_the_first_event(tmp_path: Path) -> None:
    # Large as in a real trace, in thousandths of µs.
    path = write(
        tmp_path / "t.json",
        [
            op(4393866764629.949, 260.148),
            launch(4393866764650.0, 5.5, 1),
            kernel(4393866764700.25, 10.001, "b", correlation=1),
            kernel(4393866764690.001, 0.999, "a", correlation=2),
        ],
    )
    trace = read_trace(path)
    # 700.25 - 629.949 = 70.301; 690.001 - 629.949 = 60.052; 650 - 629.949 = 20.051
    assert spans(trace.activities) == [(70301, 80302), (60052, 61051)]
    assert spans(trace.launch_calls) == [(20051, 25551)]
    assert trace.end == 260148
    assert [trace.names[i] for i in trace.activities.name] == ["b", "a"]
    assert trace.activities.correlation.tolist() == [1, 2]
    assert trace.has_host_events and trace.notes == []


def test_display_unit_changes_nothing(tmp_path: Path) -> None:
    for unit in ("ms", "ns"):
        trace = read_trace(write(tmp_path / "t.json", [kernel(5, 7)], displayTimeUnit=unit))
        assert spans(trace.activities) == [(0, 7000)]


def test_what_runs_on_a_gpu(tmp_path: Path) -> None:
    events = [
        kernel(0, 1),
        copy(1, 1),
        kernel(2, 1, "Memset (Device)", cat="gpu_memset"),
        kernel(3, 1, "ProfilerStep#1", cat="gpu_user_annotation"),
        kernel(4, 1, "Context Sync", cat="cuda_sync"),
        {**kernel(5, 1), "ph": "i"},
        {"ph": "f", "cat": "ac2g", "id": 1, "ts": 6, "pid": 0, "tid": 7},
    ]
    trace = read_trace(write(tmp_path / "t.json", events))
    assert spans(trace.activities) == [(0, 1000), (1000, 2000), (2000, 3000)]
    assert trace.activities.is_kernel.tolist() == [True, False, False]


def test_the_end_is_that_of_the_last_operator_call_or_activity(tmp_path: Path) -> None:
    ends = {
        100: [kernel(0, 100), op(0, 20)],
        30: [kernel(10, 10), op(0, 30)],
        40: [kernel(10, 10), launch(0, 40, 1)],
        50: [kernel(10, 10), annotation(0, 50, "step"), event("overhead", "Buffer", 0, 500)],
        # Nothing but the host's and GPUs' own events: no spans of the profiler, no Python frames.
        20: [kernel(0, 20), event("Trace", "PyTorch Profiler (0)", -5, 999, pid="Spans")],
        21: [kernel(1, 20), op(0, 2), event("python_function", "main", -100, 999)],
    }
    for end, events in ends.items():
        trace = read_trace(write(tmp_path / "t.json", events))
        # A figure of numpy's kind would be one that a report cannot be written with.
        assert trace.end == end * 1000 and type(trace.end) is int


def test_odd_times_are_noted(tmp_path: Path) -> None:
    without_dur = kernel(10, 0)
    del without_dur["dur"]
    without_ts = kernel(0, 5)
    del without_ts["ts"]
    events = [kernel(0, 5), without_dur, without_ts, kernel(20, -3), kernel(30, 5), kernel(1e15, 1)]
    host = op(40, 0)
    del host["dur"]
    trace = read_trace(write(tmp_path / "t.json", [*events, host, {**host, "ts": None}]))
    assert spans(trace.activities) == [(0, 5000), (10000, 10000), (30000, 35000)]
    assert trace.end == 40000
    assert trace.notes == [
        "2 events without a usable ts: left out",
        "1 event with a negative dur: left out",
        "1 event without dur: taken as zero long",
    ]


def test_times_since_1970_are_noted_as_coarse(tmp_path: Path) -> None:
    # A float of 1.79e15 is good to 0.25.
    trace = read_trace(write(tmp_path / "t.json", [kernel(1.79e15, 8), kernel(1.79e15 + 100, 8)]))
    assert spans(trace.activities) == [(0, 8000), (100000, 108000)]
    assert trace.notes == ["timestamps as large as these are only good to 0.25 us"]


def test_devices_by_index_and_pid(tmp_path: Path) -> None:
    def at(pid: Any, index: Any) -> dict[str, Any]:
        return {**kernel(0, 1), "pid": pid, "args": {} if index is None else {"device": index}}

    pairs = [(0, 0), (1, 1), (0, None), (100, 0), ("GPU 3", 3)]
    trace = read_trace(write(tmp_path / "t.json", [at(*pair) for pair in pairs]))
    # Without args.device, Kineto's pid is the index: the third event is on the first GPU.
    assert trace.devices == [Device(0, 0), Device(1, 1), Device(0, 100), Device(3, "GPU 3")]
    assert trace.activities.device.tolist() == [0, 1, 0, 2, 3]


def test_regions_steps_and_threads(tmp_path: Path) -> None:
    events = [
        annotation(0, 10, "TORCHDYNAMO"),
        annotation(20, 10, "TORCHDYNAMO_BACKWARD", tid=2),
        annotation(0, 99, "TORCHDYNAMO_OTHER"),
        op(1, 8, "## Call CompiledFxGraph fyzfd ##"),
        op(0, 9, "Torch-Compiled Region: 1/0"),
        op(0, 9, "TorchDynamo Cache Lookup"),
        annotation(0, 40, "ProfilerStep#7"),
        annotation(40, 40, "ProfilerStep#8"),
        kernel(0, 40, "TORCHDYNAMO", cat="gpu_user_annotation"),
    ]
    trace = read_trace(write(tmp_path / "t.json", events))
    assert {mark: spans(regions) for mark, regions in trace.regions.items()} == {
        "TORCHDYNAMO": [(0, 10000), (20000, 30000)],
        "## Call CompiledFxGraph": [(1000, 9000)],
        "Torch-Compiled Region": [(0, 9000)],
    }
    first, second = trace.regions["TORCHDYNAMO"].thread.tolist()
    assert first != second
    assert trace.regions["Torch-Compiled Region"].thread.tolist() == [first]
    assert trace.steps == {7: (0, 40000), 8: (40000, 80000)}


def test_rank_and_device_names(tmp_path: Path) -> None:
    trace = read_trace(
        write(
            tmp_path / "t.json",
            [kernel(0, 1)],
            distributedInfo={"backend": "nccl", "rank": 3, "world_size": 8},
            deviceProperties=[{"id": 0, "name": "NVIDIA H100"}, {"id": "x"}, None],
        )
    )
    assert (trace.rank, trace.world_size) == (3, 8)
    assert trace.device_names == {0: "NVIDIA H100"}
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps([kernel(0, 1)]))
    trace = read_trace(bare)
    assert (trace.rank, trace.world_size, trace.device_names) == (None, None, {})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"traceEvents": []}, "no events in it"),
        ([], "no events in it"),
        (
            {"traceEvents": [{"ph": "X", "cat": c, "ts": 1, "dur": 1} for c in ("v8", "toplevel")]},
            "no event of PyTorch's profiler; the categories in it: toplevel, v8",
        ),
        ([{"ph": "X", "name": "fusion.1", "ts": 1, "dur": 1}], "the categories in it: none"),
    ],
)
def test_what_is_no_profile(tmp_path: Path, content: Any, said: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(content))
    with pytest.raises(TraceError) as raised:
        read_trace(path)
    assert str(raised.value).startswith(f"{path}: ") and said in str(raised.value)


def test_a_profile_in_which_nothing_happened(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [{"ph": "M", "name": "process_name", "ts": 1, "pid": 1}])
    trace = read_trace(path)
    assert (trace.end, trace.devices, trace.has_host_events) == (0, [], False)


def test_many_pieces_and_flushes_are_as_one(tmp_path: Path) -> None:
    """As many events as need several pieces of the file and several arrays."""
    count = 40_000
    events = [e for i in range(count) for e in (launch(i, 0.5, i), kernel(i, 0.25, correlation=i))]
    trace = read_trace(write(tmp_path / "t.json", events))
    wanted = list(range(count))
    assert trace.activities.start.tolist() == [1000 * i for i in wanted]
    assert trace.activities.correlation.tolist() == wanted
    assert trace.launch_calls.correlation.tolist() == wanted
    assert trace.end == (count - 1) * 1000 + 500


def test_without_the_host(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [op(0, 100), launch(0, 5, 1), kernel(20, 5), kernel(30, 5)])
    trace = read_trace(path, host=False)
    assert spans(trace.activities) == [(0, 5000), (10000, 15000)]
    assert len(trace.launch_calls.start) == 0 and not trace.has_host_events


@pytest.mark.parametrize("name", ["h100_eager_step", "h100_inductor_step"])
def test_counts_of_a_real_trace(name: str) -> None:

    path = DATA / f"{name}.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    count = lambda *cats: sum(e.get("cat") in cats for e in events)  # noqa: E731
    trace = read_trace(path)
    assert len(trace.activities.start) == count("kernel", "gpu_memcpy", "gpu_memset")
    assert int(trace.activities.is_kernel.sum()) == count("kernel")
    assert len(trace.launch_calls.start) == count("cuda_runtime", "cuda_driver")
    assert trace.device_names == {0: "NVIDIA H100 80GB HBM3"}
    assert trace.notes == []


def test_reading_imports_no_torch() -> None:
    program = (
        "import sys; import instrumented_backend.profiling, instrumented_backend.views.trace;"
        f"from instrumented_backend.profiling import read_trace, time_of;"
        f"time_of(read_trace({str(DATA / 'h100_eager_step.json.gz')!r}));"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
