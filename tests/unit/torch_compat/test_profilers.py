"""Profilers are noticed, and see our regions."""

import torch

from instrumented_backend.torch_compat import profilers


def test_the_profiler_gate() -> None:
    profiler = profilers.profiler_state()
    assert profiler._is_profiler_enabled is False
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        assert profiler._is_profiler_enabled is True
        with profilers.record_function_fast()("a region"):
            torch.ones(1)
    assert "a region" in [event.name for event in prof.events()]


def test_profilers_are_noticed_as_they_come_and_go() -> None:
    seen: list[bool] = []
    original = profilers.profiler_state()._set_is_profiler_enabled
    undo = profilers.watch_profiler_state(seen.append)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert seen == [False, True]
    with torch.autograd.profiler.profile():
        assert seen == [False, True, False, True]
    assert seen[-1] is False
    undo()
    assert profilers.profiler_state()._set_is_profiler_enabled is original
