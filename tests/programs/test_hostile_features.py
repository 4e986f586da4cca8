"""What of torch few programs use: with us it does and leaves behind what it does with Inductor."""

from functools import partial
from pathlib import Path

import pytest
from conditions import Condition, run_both, same
from programs import RunProgram

RECOMPILES = """
torch._dynamo.config.recompile_limit = {limit}
count = compiled(lambda x, n: x + n, dynamic=False)
print([count(ones, n).sum().item() for n in range({limit} + 2)])
"""

FEATURES = {
    "reset between steps": Condition("""
x = torch.ones(4, requires_grad=True)
loss = compiled(lambda x: (x.sin() * 2).sum())
for _ in range(3):
    loss(x).backward()
    torch._dynamo.reset()
    torch.compiler.reset()
print(x.grad.tolist(), step(ones).tolist())
"""),
    "the user's profiler": Condition("""
from torch.profiler import ProfilerActivity, profile, record_function
def profiled(number):
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        with record_function("mine"):
            number = step(ones).sum()
    print([(e.key, e.count) for e in prof.key_averages() if e.key in ("mine", "aten::sum")])
profiled(0)
profiled(1)
step(ones)
with profile(activities=[ProfilerActivity.CPU], schedule=torch.profiler.schedule(
        wait=1, warmup=1, active=2)) as prof:
    for _ in range(5):
        step(ones).sum()
        prof.step()
print([(e.key, e.count) for e in prof.key_averages() if e.key == "aten::sum"])
prof = profile(activities=[ProfilerActivity.CPU])
prof.start()
compiled(lambda x: x.cos() * 3)(ones)
prof.stop()
print(step(ones).tolist())
"""),
    "imported again, as in a notebook": Condition("""
import importlib
print(step(ones).tolist())
for name in [name for name in sys.modules if name.startswith("instrumented_backend")]:
    if name in ("instrumented_backend", "instrumented_backend.backend"):
        importlib.reload(sys.modules[name])
cell = compile("def cell(x):\\n    return x.cos() * 5\\n", "<ipython-input-1-0123456789ab>", "exec")
for _ in range(2):
    exec(cell)
    print(compiled(cell_function := globals()["cell"])(ones).tolist(), step(ones).tolist())
for name in [name for name in sys.modules if name.startswith("instrumented_backend")]:
    del sys.modules[name]
if BACKEND == "instrumented":
    import instrumented_backend
print(compiled(lambda x: x.cos() * 7)(ones).tolist())
"""),
    "two versions of a graph in two threads": Condition("""
torch.set_num_threads(1)
double = compiled(lambda x: x.sin() * 2, dynamic=False)
results = [None, None]
start = threading.Barrier(2)
def work(number):
    x = torch.ones(4 + number, requires_grad=True)
    start.wait()
    for _ in range(5):
        double(x).sum().backward()
    results[number] = x.grad.tolist()
threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(results)
"""),
    "reduce-overhead": Condition("""
fast = compiled(lambda x: x.sin() * 2, mode="reduce-overhead")
print([fast(ones).tolist() for _ in range(3)])
"""),
    "cpp_wrapper": Condition("""
x = torch.ones(4, requires_grad=True)
plain = compiled(lambda x: (x.sin() * 2).sum(), options={"cpp_wrapper": True})
for _ in range(2):
    plain(x).backward()
print(x.grad.tolist())
"""),
    "odd tensors": Condition(
        """
from torch.testing._internal.two_tensor import TwoTensor
def show(name, function, *args):
    for _ in range(2):
        try:
            result = compiled(function)(*args)
            print(name, type(result).__name__, torch.utils._pytree.tree_map(str, result))
        except Exception as error:  # any: it is to be Inductor's
            print(name, type(error), error)
class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs or {})
show("function subclass", lambda x: x.sin() + 1, ones.as_subclass(Tagged))
two = TwoTensor(torch.ones(4, requires_grad=True), torch.zeros(4, requires_grad=True))
show("dispatch subclass", lambda x: x.sin() + 1, two)
compiled(lambda x: (x * x).sum())(two).backward()
print(two.grad)
show("complex", lambda x: (x * 1j).abs() + x.real, torch.ones(4, dtype=torch.complex64))
show("sparse", lambda x: x * 2, torch.eye(3).to_sparse())
show("csr", lambda x: x @ torch.ones(3, 1), torch.eye(3).to_sparse_csr())
show("zero-size", lambda x: (x.sin().sum(), x.reshape(2, 0, 3)), torch.ones(0, 3))
show("scalar", lambda x: x + 1, torch.tensor(1))
show("no tensors", lambda x: x + 1, 2)
show("nested list", lambda d: {"sum": d["a"][0] + d["a"][1]}, {"a": [ones, ones]})
show("float8", lambda x: x.to(torch.float8_e4m3fn).float(), ones)
show("meta", lambda x: x + 1, torch.ones(3, device="meta"))
""",
        same_stderr=False,  # Inductor warns of some of them only while it compiles
    ),
    "recompiles to the limit": Condition(RECOMPILES.format(limit=3)),
    "10 MB of generated code": Condition("""
@torch.library.custom_op("hostile::labelled", mutates_args=())
def labelled(x: torch.Tensor, label: str) -> torch.Tensor:
    return x + len(label)
labelled.register_fake(lambda x, label: torch.empty_like(x))
LABEL = "a b\\n'" * 2_000_000
long = compiled(lambda x: torch.ops.hostile.labelled(x.sin(), LABEL) * 2)
print([long(ones).tolist() for _ in range(2)])
"""),
    "caching_precompile": Condition(
        """
torch._dynamo.config.caching_precompile = True
def precompiled(x):
    return x.cos() * 11
print(compiled(precompiled)(ones).tolist(), step(ones).tolist())
""",
        reports=None,
        same_stderr=False,
    ),
    "an error while compiling": Condition("""
import torch._inductor.lowering as lowering
@torch.library.custom_op("hostile::bad", mutates_args=())
def bad(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
@bad.register_fake
def _(x):
    raise ValueError("no shape")
try:
    compiled(lambda x: torch.ops.hostile.bad(x) + 1)(ones)
except Exception as error:  # any: it is to be Inductor's
    print(type(error), str(error).partition("from user code")[0])
torch._dynamo.config.suppress_errors = True
print(compiled(lambda x: torch.ops.hostile.bad(x) + 1)(ones).tolist())
"""),
}

BIG = {
    "100 recompiles": Condition(RECOMPILES.format(limit=100)),
    "2,000 ops": Condition("""
def many(x, w):
    for number in range(2000):
        x = x @ w
    return x
run = compiled(many)
print([run(torch.ones(4, 4), torch.eye(4)).tolist() for _ in range(2)])
"""),
}


DEEP = Condition("""
def deep(n):
    return step(ones) if n == 0 else deep(n - 1)
step(ones)
depth = 500
try:
    while True:
        deep(depth)
        depth += 1
except RecursionError:
    print(depth)
print(step(ones).tolist())
""")


@pytest.mark.full
@pytest.mark.parametrize("name", FEATURES)
def test_features(run_forked: RunProgram, tmp_path: Path, name: str) -> None:
    condition = FEATURES[name]
    theirs, ours = run_both(run_forked, condition, tmp_path)
    same(condition, tmp_path, theirs, ours)


@pytest.mark.full
@pytest.mark.parametrize("name", BIG)
def test_big(run_forked: RunProgram, tmp_path: Path, name: str) -> None:
    theirs, ours = run_both(partial(run_forked, timeout=900), BIG[name], tmp_path)
    same(BIG[name], tmp_path, theirs, ours)


@pytest.mark.full
def test_deep_recursion(run_forked: RunProgram, tmp_path: Path) -> None:
    """A watched call takes a Python frame more than Inductor's, two where calls are counted in
    Python; the end of the stack is the same."""
    theirs, ours = run_both(run_forked, DEEP, tmp_path)
    depth, *rest = ours.stdout.splitlines()
    their_depth, *their_rest = theirs.stdout.splitlines()
    assert int(their_depth) - int(depth) <= 2
    assert (rest, ours.returncode) == (their_rest, theirs.returncode)
