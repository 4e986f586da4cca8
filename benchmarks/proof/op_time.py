"""Time of ops where something else goes on: compilations inside an op."""

from typing import Any

from proof import child
from proof.figures import Figure


def op_time() -> list[Figure]:
    """In a process of its own.

    Reentrant checkpointing calls a function, which is compiled there, in the forward and in the
    backward of an op: of what the compilations take, a tenth at most may be left in the op's time.
    What a program does far from any graph is in `truth.py`.
    """
    left_pct = child.call(compile_time_in_ops, INSTRUMENTED_OPS="always")
    figure = "compile time left in ops, %"
    return [Figure("checkpoint", figure, "cold", left_pct, 0, 10, in_points=True)]


def compile_time_in_ops() -> float:
    """In percent of the time of the compilations, with an empty cache."""
    import torch
    from torch._inductor.utils import fresh_cache
    from torch.utils.checkpoint import checkpoint

    import instrumented_backend

    torch.compile(lambda x: x + 1, backend="instrumented")(torch.ones(3))
    compiled = torch.compile(lambda x: x.sin().cos() * 3, backend="instrumented")

    def block(x: Any) -> Any:
        for _ in range(5):  # inside an op, these are not listened to from the third on
            x = x * 2
        return compiled(x)

    x = torch.ones(8, 8, requires_grad=True)
    with fresh_cache():
        checkpoint(block, x, use_reentrant=True).sum().backward()
    report = instrumented_backend.report()
    compiled_s = sum(
        record.total_s or 0
        for record in report.compile.compilations
        if not str(record.compile_id).startswith("0/")
    )
    times_s = {record.op: record.time_us / 1e6 for record in report.ops.eager}
    took_s = times_s["CheckpointFunction"] + times_s["CheckpointFunctionBackward"]
    return 100 * took_s / compiled_s
