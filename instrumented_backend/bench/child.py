"""The process that runs generated code: one module after the other, a line of JSON for each step.

``python -m instrumented_backend.bench.child`` reads a request from stdin. What the generated code
prints goes to stderr; the lines of JSON are the process's own stdout.
"""

import importlib.util
import io
import os
import resource
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import TextIO

from instrumented_backend.bench import events

MODULE_NAME = "instrumented_backend_benchmarked_module"


def main() -> None:
    request = events.read_request(sys.stdin.read())
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    channel = Channel(out)
    import torch

    from instrumented_backend.bench.peak import NoDevice, measure_peak

    if isinstance(request, events.PeakRequest):
        try:
            channel.say(events.PeakMeasured(measure_peak(request.device)))
        except NoDevice as error:
            channel.say(events.DeviceMissing(str(error)))
        return
    if request.memory_limit_bytes is not None:
        _limit_memory(request.memory_limit_bytes)
    if request.without_autotune_cache:
        from instrumented_backend.torch_compat import inductor

        inductor.patch_autotune_cache()
    with torch.no_grad():
        _bench(request, channel)
    channel.say(events.End())


class Channel:
    """What the parent is told."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def say(self, event: events.Event) -> None:
        self._out.write(events.to_line(event) + "\n")
        self._out.flush()


def _limit_memory(limit: int) -> None:
    """Let allocations fail beyond what the process has mapped by now and ``limit`` more bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    total = pages * resource.getpagesize() + limit
    resource.setrlimit(resource.RLIMIT_AS, (total, total))


def _bench(request: events.ModuleRequest, channel: Channel) -> None:
    from instrumented_backend.bench.walk import NotReached, is_fatal, reason

    steps: Callable[[events.ModuleRequest, Channel], None]
    steps = _graph if request.kind == "graph" else _kernel
    try:
        steps(request, channel)
    except NotReached as error:
        channel.say(events.Failed(str(error)))
    except Exception as error:  # whatever generated code may raise: the parent reports it
        channel.say(events.Failed(reason(error)))
        if is_fatal(error):
            os._exit(1)  # the device's context is of no more use, not even for leaving


def load_module(path: str) -> ModuleType:
    """Run a generated module; it compiles its kernels, or loads them from Inductor's cache."""
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module
    spec.loader.exec_module(module)
    return module


def _graph(request: events.ModuleRequest, channel: Channel) -> None:
    from instrumented_backend.bench.graph import graph_arguments, profile_graph, time_call
    from instrumented_backend.bench.walk import Launch, Walk
    from instrumented_backend.kernels.parse import GraphSource

    path = os.fsdecode(request.path)
    text = Path(path).read_text(encoding="utf-8")
    source = GraphSource(text)
    module = load_module(path)
    device = request.device

    def begin(launch: Launch) -> None:
        channel.say(events.Begin(launch.number, launch.name))

    def done(launch: Launch) -> None:
        channel.say(events.Rows(launch.number, launch.name, launch.records))

    walk = Walk(
        source,
        device,
        begin,
        done,
        all_configs=request.all_configs,
        resume=request.resume,
        skip=frozenset(request.skip),
    )
    channel.say(events.Ready())
    try:
        walk.run(module, graph_arguments(module, source, text))
    finally:
        calls = {launch.number: launch.calls for launch in walk.launches.values()}
        channel.say(events.Calls(calls))
    if request.skip:
        return  # the whole call would end as the launch that is left out did
    arguments = graph_arguments(module, source, text)
    channel.say(events.Begin(None, "the compiled call"))
    channel.say(events.WholeCall(time_call(module, arguments, device)))
    if device == "cuda" and not request.all_configs:  # configurations are compared alone
        from instrumented_backend.bench.in_place import time_in_place

        channel.say(events.Begin(None, "the kernels in calls of the graph"))
        times = time_in_place(module, list(source.sources), walk.course, arguments)
        channel.say(events.InPlace(times))
    if request.profile:
        channel.say(events.Begin(None, "the profile"))
        with redirect_stdout(io.StringIO()) as report:
            profile_graph(Path(path).stem, module, source, arguments, device)
        channel.say(events.Profile(report.getvalue()))


def _kernel(request: events.ModuleRequest, channel: Channel) -> None:
    from instrumented_backend.bench.kernel_module import bench_kernel_module

    path = os.fsdecode(request.path)
    text = Path(path).read_text(encoding="utf-8")
    module = load_module(path)
    channel.say(events.Ready())
    channel.say(events.Begin(0, ""))
    records = bench_kernel_module(module, text, request.device, request.all_configs)
    channel.say(events.Rows(0, "", records))


if __name__ == "__main__":
    main()
