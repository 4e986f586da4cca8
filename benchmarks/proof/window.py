"""What a window of device time leaves behind: launch-bound steps after it, over those before it."""

import sys
import time

import click

from proof import child
from proof.figures import Cost, cost_of

STEPS, WINDOW_STEPS, WARM_UP = 25, 5, 10


def after_a_window(pairs: int) -> list[Cost]:
    """Each in a process of its own; without a window, for what a process does by itself.

    The n-th block of steps after the window is paired with the n-th before it.
    """
    return [
        cost_of(
            f"launch-bound steps, cuda, after {what}",
            child.call(after_over_before, opens, pairs, **variables),
            "x",
            None,
        )
        for what, opens, variables in (
            ("no window", False, {}),
            ("a window", True, {}),
            ("a window, TEARDOWN_CUPTI=1", True, {"TEARDOWN_CUPTI": "1"}),
        )
    ]


def after_over_before(opens: bool, pairs: int) -> list[float]:
    """Ratios of blocks of steps, of plain Inductor; the window is what the backend opens."""
    import torch
    import workloads

    from instrumented_backend.torch_compat import profilers

    (step,) = workloads.net("cuda", "inductor")

    def seconds() -> float:
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    for _ in range(WARM_UP):
        step()
    seconds()
    before = [seconds() for _ in range(pairs)]
    if opens:
        with profilers.device_profile():
            for _ in range(WINDOW_STEPS):
                step()
        seconds()  # the profiler's memory is let go
    after = [seconds() for _ in range(pairs)]
    kind = "a window" if opens else "no window"
    click.echo(f"{kind}: {1e3 * min(before) / STEPS:.3f} ms a step before it", file=sys.stderr)
    return [late / early for late, early in zip(after, before, strict=True)]
