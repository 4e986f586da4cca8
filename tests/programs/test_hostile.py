"""Programs in trouble: with us they do and leave behind what they do with Inductor.

Each condition is a program of its own, run with both backends. Exit code, stdout, the files in its
folders, and stderr (our lines and frames apart) must be the same. Conditions that concern the
report are in `test_exit.py`, failures of our own in `test_failures.py`, two processes of one job in
`test_two_ranks.py`; freezing, compiled autograd and DDPOptimizer in `test_backend.py`.
"""

import sys
from functools import partial
from pathlib import Path

import pytest
from conditions import PRELUDE, Condition, run_both, same
from paths import REPOSITORY
from programs import RunProgram
from speeds import full_but


def in_step(statements: str, after: str = "") -> str:
    body = "\n".join("    " + line for line in statements.splitlines())
    return f"step(ones)\ndef hook():\n{body}\nprint(step(ones).tolist())\n{after}"


ENDINGS = {
    "an exception": Condition(in_step("raise KeyError('boom')")),
    "an exception after the step": Condition("step(ones)\nprint('so far')\nones.view(5)"),
    "sys.exit": Condition(in_step("sys.exit(3)")),
    "sys.exit with a message": Condition(in_step("sys.exit('no')")),
    "os._exit": Condition(in_step("os._exit(5)"), reports=0),
    "os.abort": Condition(in_step("os.abort()"), reports=0),
    "SIGTERM": Condition(in_step("os.kill(os.getpid(), signal.SIGTERM); time.sleep(600)")),
    "SIGINT": Condition(in_step("signal.raise_signal(signal.SIGINT)")),
    "SIGTERM with a handler": Condition(
        "signal.signal(signal.SIGTERM, lambda *_: (print('mine'), sys.exit(9)))\n"
        + in_step("signal.raise_signal(signal.SIGTERM)")
    ),
    "SIGTERM with a later handler that goes on": Condition(
        "step(ones)\nsignal.signal(signal.SIGTERM, lambda *_: print('mine'))\n"
        + in_step("signal.raise_signal(signal.SIGTERM)")
    ),
    "SIGINT with a handler": Condition(
        "signal.signal(signal.SIGINT, lambda *_: print('mine'))\n"
        + in_step("signal.raise_signal(signal.SIGINT)")
    ),
    "KeyboardInterrupt caught": Condition("""
def hook(): signal.raise_signal(signal.SIGINT)
try:
    step(ones)
except KeyboardInterrupt:
    print("saved")
hook = lambda: None
print(step(ones).tolist())
"""),
    "unknown files closed": Condition("""
step(ones)
time.sleep(0.3)  # the thread that waits for SIGTERM waits
os.closerange(3, 4096)
# Python complains of signals until that thread, as its last act, has the main one forget the pipe.
while any(thread.name == "instrumented-sigterm" for thread in threading.enumerate()):
    time.sleep(0.01)
mine = [os.open(f"mine{i}", os.O_RDWR | os.O_CREAT) for i in range(12)]
signal.signal(signal.SIGUSR1, lambda *_: print("USR1"))
for _ in range(3):
    signal.raise_signal(signal.SIGUSR1)
for ending in (lambda: os._exit(2), lambda: os.kill(os.getpid(), signal.SIGTERM)):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        for file in mine:
            os.write(file, b"child")
        ending()
        time.sleep(600)
    print(os.waitpid(child, 0)[1])
for file in mine:
    os.write(file, b"parent")
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(600)
"""),
    "atexit": Condition("""
atexit.register(lambda: print("before", step(ones).tolist()))
step(ones)
atexit.register(lambda: print("after", step(ones).tolist()))
atexit.register(lambda: print("new", compiled(lambda x: x * 3)(ones).tolist()))
"""),
    "a thread still at work": Condition("""
step(ones)
def work():
    for _ in range(20):
        step(ones)
        time.sleep(0.02)
    print("worked")
threading.Thread(target=work).start()
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("main ends")
"""),
}

PROCESSES = {
    "fork in a step": Condition("""
parent = os.getpid()
def hook():
    global child
    sys.stdout.flush()
    child = os.fork()
result = step(ones).tolist()
if os.getpid() != parent:
    hook = lambda: None
    print("child", result, step(ones * 2).tolist())
    sys.exit(7)
# Before the parent prints: the two share a file, and nothing else orders their lines.
left = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print("parent", result, left)
"""),
    "multiprocessing": Condition(
        """
import multiprocessing
def work(x):
    return (step(ones) * x).sum().item()
if __name__ == "__main__":
    torch.set_num_threads(1)
    step(ones)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(work, range(4)))
    process = multiprocessing.get_context("fork").Process(target=os._exit, args=(3,))
    process.start(); process.join()
    print(process.exitcode)
"""
    ),
    "data loaders": Condition("""
if __name__ == "__main__":
    for method, workers in (("fork", 2), ("spawn", 1)):
        data = torch.utils.data.DataLoader(
            range(8), num_workers=workers, multiprocessing_context=method
        )
        step(ones)
        print(sum(int(batch) for batch in data))
"""),
}

# In these our own lines have nowhere to go.
_SHOWN = {"INSTRUMENTED_TABLES": "all"}

SURROUNDINGS = {
    "warnings as errors": Condition("""
import warnings
warnings.simplefilter("error")
x = torch.ones(4, requires_grad=True)
compiled(lambda x: (x.sin() * 2).sum())(x).backward()
print(step(ones).tolist(), x.grad.tolist())
"""),
    "stderr closed": Condition("step(ones); os.close(2)", env=_SHOWN),
    "stderr closed by Python": Condition("step(ones); sys.stderr.close()", env=_SHOWN),
    "stderr is None": Condition("step(ones); sys.stderr = None", env=_SHOWN),
    "stderr on a full disk": Condition(
        "os.dup2(os.open('/dev/full', os.O_WRONLY), 2); print(step(ones).tolist())", env=_SHOWN
    ),
    "stderr a broken pipe": Condition(
        "r, w = os.pipe(); os.dup2(w, 2); os.close(r); print(step(ones).tolist())", env=_SHOWN
    ),
    "stdout a broken pipe": Condition(
        "r, w = os.pipe(); os.dup2(w, 1); os.close(r); print(step(ones).tolist())"
    ),
    "stdout on a full disk": Condition(
        "os.dup2(os.open('/dev/full', os.O_WRONLY), 1); print(step(ones).tolist())"
    ),
    "the working folder deleted": Condition(
        """
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
x = torch.ones(4, requires_grad=True)
compiled(lambda x: (x.sin() * 2).sum())(x).backward()
print(step(ones).tolist(), x.grad.tolist())
"""
    ),
    "a full disk at the end": Condition(
        """
import resource
step(ones)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
""",
        reports=0,
        same_stderr=False,  # what was not written
    ),
    "a read-only report folder at the end": Condition(
        """
print(step(ones).tolist())
os.makedirs(os.environ["INSTRUMENTED_DIR"], exist_ok=True)
os.chmod(os.environ["INSTRUMENTED_DIR"], 0o500)
if os.geteuid() == 0:
    os.seteuid(65534)  # root writes anywhere
print(step(ones).tolist())
""",
        reports=0,
        same_stderr=False,  # what was not written
    ),
    "nobody's home": Condition(
        "print(step(ones).tolist())",
        before="import pwd\ndef getpwuid(uid): raise KeyError(uid)\npwd.getpwuid = getpwuid",
        env={"HOME": None, "XDG_CACHE_HOME": None},
    ),
    "no compiler, warm": Condition("print(step(ones).tolist())", env={"PATH": "/nonexistent"}),
    "no compiler, cold": Condition(
        """
import torch._inductor.config
torch._inductor.config.force_disable_caches = True
try:
    print(step(ones).tolist())
except Exception as error:  # any: it is to be Inductor's
    print(type(error), error)
print(torch.compile(lambda x: x + 1, backend="eager")(ones).tolist())
""",
        env={"PATH": "/nonexistent"},
    ),
    "little memory": Condition(
        """
import resource
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + 300_000_000,) * 2)
print(step(ones).tolist())
"""
    ),
    "no more threads": Condition(
        "print(step(ones).tolist())",
        before="def start(self): raise RuntimeError('no thread')\nthreading.Thread.start = start",
        same_stderr=False,
        nothing_lost=False,
    ),
}

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

CONDITIONS = {**ENDINGS, **PROCESSES, **SURROUNDINGS, **FEATURES}

BIG = {
    "100 recompiles": Condition(RECOMPILES.format(limit=100)),
    "5,000 ops": Condition("""
def many(x, w):
    for number in range(5000):
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


# --- Running them -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", full_but(CONDITIONS, "an exception", "SIGTERM", "fork in a step", "warnings as errors")
)
def test_hostile(run_forked: RunProgram, tmp_path: Path, name: str) -> None:
    condition = CONDITIONS[name]
    theirs, ours = run_both(run_forked, condition, tmp_path)
    same(condition, tmp_path, theirs, ours)


@pytest.mark.full
@pytest.mark.parametrize("name", BIG)
def test_big(run_forked: RunProgram, tmp_path: Path, name: str) -> None:
    theirs, ours = run_both(partial(run_forked, timeout=900), BIG[name], tmp_path)
    same(BIG[name], tmp_path, theirs, ours)


@pytest.mark.full
def test_python_isolated_and_optimized(run_program: RunProgram, tmp_path: Path) -> None:
    """``-OO`` is ``PYTHONOPTIMIZE=2``, which ``-I`` would not read."""
    condition = Condition("assert False\nprint(sys.flags.optimize, step(ones).tolist())")
    command = (sys.executable, "-I", "-OO", "{script}")
    theirs, ours = run_both(partial(run_program, command=command), condition, tmp_path)
    assert ours.stdout.startswith("2 [")
    same(condition, tmp_path, theirs, ours)


@pytest.mark.full
def test_deep_recursion(run_forked: RunProgram, tmp_path: Path) -> None:
    """A watched call takes a Python frame more than Inductor's, two where calls are counted in
    Python; the end of the stack is the same."""
    theirs, ours = run_both(run_forked, DEEP, tmp_path)
    depth, *rest = ours.stdout.splitlines()
    their_depth, *their_rest = theirs.stdout.splitlines()
    assert int(their_depth) - int(depth) <= 2
    assert (rest, ours.returncode) == (their_rest, theirs.returncode)


def test_a_relative_report_folder_in_a_deleted_one(run_forked: RunProgram) -> None:
    """A bad value is one of the few reasons to end a program, and one line says which."""
    done = run_forked(
        PRELUDE.format(
            repository=str(REPOSITORY),
            backend="instrumented",
            before='os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")',
        ),
        env={"INSTRUMENTED_DIR": "relative"},
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("INSTRUMENTED_DIR='relative': cannot make this folder: No such")
    assert done.stderr.count("\n") == 1
