"""Bytes of C++ kernels, as Inductor's scheduler counts them."""

import pytest
from programs import RunProgram

SCHEDULER = """
    import json, torch
    import torch.nn.functional as F
    from torch._inductor import graph, scheduler
    from instrumented_backend.kernels.parse import parse_module
    seen, codes = [], []
    original = scheduler.Scheduler.codegen
    def codegen(self):
        seen.append([n.get_read_write_buffers_sizes() for n in self.nodes if not n.is_extern()])
        return original(self)
    scheduler.Scheduler.codegen = codegen
    graph.GraphLowering.save_output_code = staticmethod(codes.append)
    r = torch.randn
    programs = {
        "pointwise": (lambda x, y: (x.sin() + y).relu(), r(1000, 37), r(1000, 37)),
        "slices": (lambda x: x[:, :10] * 2 + x[:, 20:30], r(64, 100)),
        "cat": (lambda a, b: torch.cat([a.sin(), b.cos()], 1), r(64, 100), r(64, 50)),
        "transpose": (lambda a: a.t().contiguous() + 1, r(64, 100)),
        "gather": (lambda a, i: a[i] * 2, r(1000, 64), torch.randint(0, 1000, (32,))),
        "pool": (lambda a: F.max_pool2d(a, 2), r(2, 8, 32, 32)),
        "broadcast": (lambda a, b: a + b, r(1000, 64), r(64)),
        "sum": (lambda a: a.sum(-1), r(60, 64)),
        "bfloat16": (lambda a: a.to(torch.bfloat16), r(60, 64)),
    }
    for name, (function, *inputs) in programs.items():
        seen.clear(), codes.clear()
        torch._dynamo.reset()
        torch.compile(function)(*inputs)
        kernels = [k.total_bytes for c in codes for k in parse_module(c) if k.language == "cpp"]
        print(json.dumps([name, sum(seen[0]), sum(kernels)]))
"""


@pytest.mark.full
def test_cpp_bytes_are_the_schedulers(run_forked: RunProgram) -> None:
    """Equal for a kernel of one scheduler node, and for one of several that share no buffer."""
    done = run_forked(SCHEDULER, env={"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"})
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(lines) == 9
    for line in lines:
        _, theirs, ours = line.strip("[]").split(", ")
        assert int(ours) == int(theirs) > 0, line
