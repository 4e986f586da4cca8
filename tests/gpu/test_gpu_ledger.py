"""Where the time of the GPU went, by events on its streams; the program's own use of it goes on."""

import pytest
import torch

import instrumented_backend
from instrumented_backend.records import (
    GPU_BOUND,
    LAUNCH_BOUND,
    STREAM_BOUND,
    GpuRow,
    GpuSection,
    Report,
)


def the_gpu(report: Report) -> GpuRow:
    assert report.gpu.note is None and "lost" not in report.note_codes, report.notes
    (row,) = report.gpu.gpus
    assert report.gpu.timeline_s is not None
    whole = row.captured_s + row.eager_s + row.idle_s
    assert whole == pytest.approx(report.gpu.timeline_s)
    return row


def test_small_calls(fresh: None) -> None:
    compiled = torch.compile(lambda x: x.sin() + 1, backend="instrumented")
    x = torch.ones(8, device="cuda")
    for _ in range(300):
        compiled(x).cos()
    report = instrumented_backend.report()
    row = the_gpu(report)
    # Which one is for benchmarks/truth.py to tell: other processes may use the GPU.
    assert row.device == 0 and row.verdict in (LAUNCH_BOUND, GPU_BOUND, STREAM_BOUND)
    assert row.name == torch.cuda.get_device_name(0)
    assert report.graphs[0].gpu_time_us == pytest.approx(1e6 * row.captured_s)
    (missed,) = [op for op in report.ops.missing if op.op == "aten::cos"]
    assert missed.gpu_time_us is not None and missed.gpu_time_us > 0


def test_gpu_bound(fresh: None) -> None:
    weight = torch.randn(8192, 8192, device="cuda")

    def many(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = (x @ weight).sin()
        return x

    compiled = torch.compile(many, backend="instrumented")
    for _ in range(20):
        compiled(weight)
    torch.cuda.synchronize()
    assert the_gpu(instrumented_backend.report()).verdict == GPU_BOUND


def test_training(fresh: None) -> None:
    """The backward is called on a thread of autograd's."""
    layer = torch.nn.Linear(64, 64).cuda()
    compiled = torch.compile(lambda x: layer(x).relu().sum(), backend="instrumented")
    x = torch.randn(64, 64, device="cuda")
    for _ in range(50):
        compiled(x).backward()
    torch.cuda.synchronize()
    report = instrumented_backend.report()
    (graph,) = report.graphs
    assert graph.forward_gpu_us and graph.backward_gpu_us
    assert graph.gpu_time_us == pytest.approx(1e6 * the_gpu(report).captured_s)


def test_a_capture_of_the_programs_own(fresh: None) -> None:
    """Of compiled code, on a stream of its own, in each mode of captures."""
    compiled = torch.compile(lambda x: x.sin() + 1, backend="instrumented")
    x = torch.randn(64, device="cuda")
    for mode in ("global", "thread_local", "relaxed"):
        compiled(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode=mode):
            y = compiled(x)
        x.fill_(2.0)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, torch.full_like(x, 2.0).sin() + 1)
        x.normal_()
    the_gpu(instrumented_backend.report())


def test_streams_of_the_programs_own(fresh: None) -> None:
    compiled = torch.compile(lambda x: x.sin() + 1, backend="instrumented")
    x = torch.randn(1 << 20, device="cuda")
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    for _ in range(50):
        for stream in streams:
            with torch.cuda.stream(stream):
                compiled(x)
    torch.cuda.synchronize()
    report = instrumented_backend.report()
    assert the_gpu(report).captured_s > 0 and report.graphs[0].calls == 100


def test_a_graph_on_a_cpu_is_none_of_a_gpus(fresh: None) -> None:
    compiled = torch.compile(lambda x: x.sin() + 1, backend="instrumented")
    for _ in range(10):
        compiled(torch.ones(8))
    assert instrumented_backend.report().gpu == GpuSection()


def test_a_part_of_the_run(fresh: None) -> None:
    compiled = torch.compile(lambda x: x.sin() + 1, backend="instrumented")
    x = torch.ones(8, device="cuda")
    for _ in range(100):
        compiled(x)
    torch.cuda.synchronize()  # of a GPU that is behind, nothing may be known yet
    with instrumented_backend.observed() as seen:
        for _ in range(100):
            compiled(x)
        torch.cuda.synchronize()
    whole = instrumented_backend.report()
    part = the_gpu(seen)
    assert whole.gpu.timeline_s is not None and seen.gpu.timeline_s is not None
    assert 0 < seen.gpu.timeline_s < whole.gpu.timeline_s
    assert 0 <= part.captured_s <= the_gpu(whole).captured_s
