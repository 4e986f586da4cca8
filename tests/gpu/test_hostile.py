"""Programs in trouble on a GPU."""

from pathlib import Path

from conditions import Condition, run_both, same
from programs import RunProgram

REDUCE_OVERHEAD_ON_CUDA = Condition("""
x = torch.ones(4, device="cuda", requires_grad=True)
fast = compiled(lambda x: (x.sin() * 2).sum(), mode="reduce-overhead")
for _ in range(5):
    torch.compiler.cudagraph_mark_step_begin()
    fast(x).backward()
    print(x.grad.tolist())
    x.grad = None  # it lies in memory that the next replay writes to
""")


def test_cudagraphs(run_program: RunProgram, tmp_path: Path) -> None:
    theirs, ours = run_both(run_program, REDUCE_OVERHEAD_ON_CUDA, tmp_path)
    same(REDUCE_OVERHEAD_ON_CUDA, tmp_path, theirs, ours)
    assert ours.returncode == 0, ours.stderr
    assert ours.report["summary"]["graph_calls"] == 5
