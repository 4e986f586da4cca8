"""Profilers are noticed, and see our regions."""

import torch
from torch.autograd import profiler

from instrumented_backend.torch_compat import profilers


def test_the_profiler_gate() -> None:
    assert profilers.is_running() is False
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        assert profilers.is_running() is True
        with profilers.record_function_fast()("a region"):
            torch.ones(1)
    assert "a region" in [event.name for event in prof.events()]
    profiler._set_is_profiler_enabled(True)  # as one does that fails while it starts
    profilers.note_none_runs()
    assert profilers.is_running() is False


def test_profilers_are_noticed_as_they_come_and_go() -> None:
    seen: list[bool] = []
    original = profiler._set_is_profiler_enabled
    undo = profilers.watch_running(seen.append)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert seen == [False, True]
    with torch.autograd.profiler.profile():
        assert seen == [False, True, False, True]
    assert seen[-1] is False
    undo()
    assert profiler._set_is_profiler_enabled is original
