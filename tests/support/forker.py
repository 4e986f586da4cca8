"""Runs programs in processes forked from one that has compiled: each saves seconds.

Reads a JSON line for each program (``script, cwd, env, stdout, stderr``) and writes two lines: the
process's id, and its exit code as ``subprocess`` has it. The forked process goes on as an
interpreter of its own: the program ends as any other, through threads, ``atexit`` and all.
"""

import atexit
import gc
import itertools
import json
import os
import resource
import runpy
import sys
import threading

import torch
import torch._dynamo
import torch._inductor.config
from packaging.version import Version


def warm_up() -> None:
    """Compile once: half of what the first compilation takes is imports.

    Without gradients: a process that has used autograd's engine must not be forked.
    """
    with torch._inductor.config.patch(compile_threads=1):  # or a pool of threads would stay
        torch.compile(lambda x: x.sin(), backend="inductor")(torch.ones(3))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch._dynamo.utils.clear_compilation_metrics()
    torch._inductor.metrics.reset()
    torch._inductor.compile_fx._graph_counter = itertools.count()
    for module in (torch._inductor.graph, torch._inductor.scheduler):
        module._post_grad_graph_counter = itertools.count()


def serve() -> str | None:
    """Fork for each request; returns the script in the forked process, None in this one."""
    assert "instrumented_backend" not in sys.modules
    assert all(t.daemon for t in threading.enumerate() if t is not threading.main_thread())
    gc.collect()
    gc.freeze()  # or each child's collections copy all that is shared
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            become(request)
            return str(request["script"])
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    return None


def become(request: dict[str, str]) -> None:
    for descriptor, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, request["stdout"], os.O_WRONLY | os.O_CREAT),
        (2, request["stderr"], os.O_WRONLY | os.O_CREAT),
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin = os.fdopen(0)
    os.environ.clear()
    os.environ.update(request["env"])
    # What Inductor reads as it is imported, which was before.
    config, env = torch._inductor.config, os.environ
    config.enabled_metric_tables = env.get("TORCHINDUCTOR_ENABLED_METRIC_TABLES", "")
    config.force_disable_caches = env.get("TORCHINDUCTOR_FORCE_DISABLE_CACHES") == "1"
    os.chdir(request["cwd"])
    triton = sys.modules.get("triton")
    if triton is not None and Version("3.9") <= Version(triton.__version__):
        # It says on stderr what of it is left when Python ends, and what is frozen is not freed.
        atexit.register(gc.unfreeze)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.argv[:] = [request["script"]]


if __name__ == "__main__":
    warm_up()
    script = serve()
    if script is not None:
        runpy.run_path(script, run_name="__main__")
