"""One run of a program, in a process of its own: what `next_steps.py` calls there."""

import functools
import time
from dataclasses import asdict
from typing import Any


def timed(name: str, changed: bool) -> dict[str, Any]:
    """Under plain Inductor, by the program's own clock, from its first `torch.compile` on."""
    import torch
    import torch._inductor.compile_fx  # which takes seconds, in either

    from next_programs.catalogue import PROGRAMS

    compile = functools.partial(torch.compile, backend="inductor")
    started = time.perf_counter()
    result = PROGRAMS[name].program(compile, changed)
    return {"seconds": time.perf_counter() - started, "result": result}


def told(name: str) -> dict[str, Any]:
    """What the report of the program as it is says to do next."""
    import torch

    import instrumented_backend
    from instrumented_backend.views.next_steps import next_steps
    from next_programs.catalogue import PROGRAMS

    result = PROGRAMS[name].program(functools.partial(torch.compile, backend="instrumented"), False)
    report = instrumented_backend.report()
    return {"result": result, "steps": [asdict(step) for step in next_steps(report)]}
