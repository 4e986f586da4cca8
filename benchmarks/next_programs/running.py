"""One run of a program, in a process of its own: what `next_steps.py` calls there."""

import functools
import time
from dataclasses import asdict
from typing import Any


def timed(name: str, changed: bool, device: str) -> dict[str, Any]:
    """Under plain Inductor, by the program's own clocks, from its first `torch.compile` on."""
    return _run(name, "inductor", changed, device)


def told(name: str, device: str) -> dict[str, Any]:
    """What the report of the program as it is says to do next."""
    import instrumented_backend
    from instrumented_backend.views.next_steps import next_steps

    ran = _run(name, "instrumented", False, device)
    steps = next_steps(instrumented_backend.report())
    return {**ran, "steps": [asdict(step) for step in steps]}


def _run(name: str, backend: str, changed: bool, device: str) -> dict[str, Any]:
    import torch
    import torch._inductor.compile_fx  # which takes seconds, whatever is changed

    from next_programs.catalogue import PROGRAMS

    # Threads that wait for each other take milliseconds for a small product, where others compute.
    torch.set_num_threads(1)
    compile = functools.partial(torch.compile, backend=backend)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    result = PROGRAMS[name].program(compile, changed, device)
    return {
        "wall": time.perf_counter() - wall_s,
        "cpu": time.process_time() - cpu_s,
        "result": result,
    }
