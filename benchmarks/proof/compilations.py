"""What compiling costs: forward and backward of a two-layer GPT, cold and warm."""

import contextlib
import logging
import random
import resource
import sys
import time

import click

from proof.figures import Cost, cost_of

BACKENDS = ("inductor", "instrumented")


def compilations(device: str, pairs: int, warm: bool) -> list[Cost]:
    """Forward and backward of a two-layer GPT, as ratios to Inductor's; Ctrl-C ends it early.

    Wall time, and the CPU seconds of the process and of the compilers that it starts. Both
    backends compile in turn in one process: from one process to the next, times vary by 20 %, far
    more than there is to see. In Inductor's turns our listener is detached.
    """
    import torch
    import torch._dynamo
    from torch._inductor.utils import fresh_cache

    from instrumented_backend.demo import BATCH, LENGTH, SmallGPT
    from instrumented_backend.torch_compat.trace_log import TRACE_LOGGER

    model = SmallGPT().to(device)
    text = torch.arange(BATCH * LENGTH, device=device).view(BATCH, LENGTH) % 7
    torch.compile(lambda x: x + 1, backend="instrumented")(torch.ones(2, device=device))
    trace = logging.getLogger(TRACE_LOGGER)
    listening = trace.handlers

    def seconds(backend: str) -> tuple[float, float]:
        torch._dynamo.reset()
        trace.handlers = listening if backend == "instrumented" else []
        with contextlib.nullcontext() if warm else fresh_cache():
            start, cpu_start = time.perf_counter(), cpu_seconds()
            torch.compile(model, backend=backend)(text).backward()
            return time.perf_counter() - start, cpu_seconds() - cpu_start

    for backend in ("inductor", "instrumented"):  # fills the caches, imports, starts the pools
        seconds(backend)
    label = "warm compile" if warm else "cold compile"
    ratios = []
    with click.progressbar(range(pairs), label=label, file=sys.stderr) as bar:
        try:
            for _ in bar:
                pair = {name: seconds(name) for name in random.sample(BACKENDS, 2)}
                ratios.append([pair["instrumented"][i] / pair["inductor"][i] for i in range(2)])
        except KeyboardInterrupt:
            click.echo(f"stopped after {len(ratios)} pairs", err=True)
    trace.handlers = listening
    limit = 1.05 if warm else 1.02
    return [
        cost_of(f"{label}, {device} ({unit})", [ratio[i] for ratio in ratios], "x", limit)
        for i, unit in enumerate(("wall time", "CPU seconds"))
    ]


def cpu_seconds() -> float:
    """Of this process and of the children that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
