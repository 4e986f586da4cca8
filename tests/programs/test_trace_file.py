"""A profile of a compiled program, read back."""

from pathlib import Path

from instrumented_backend.traces.trace_file import read_trace


def test_marks_of_this_backend_in_a_profile_of_its_own(tmp_path: Path, fresh: None) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile

    compiled = torch.compile(lambda x: (x + 1).relu().sum(), backend="instrumented")
    x = torch.ones(8, requires_grad=True)
    compiled(x).backward()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        compiled(x).backward()
        compiled(x)
    path = tmp_path / "t.json.gz"
    profiler.export_chrome_trace(str(path))
    trace = read_trace(path)
    assert len(trace.regions["TORCHDYNAMO"].start) == 3  # two forward, one backward
    assert trace.devices == [] and trace.has_host_events
