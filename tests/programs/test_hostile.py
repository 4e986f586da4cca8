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
while any(thread.name == "instrumented-signals" for thread in threading.enumerate()):
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
    "random numbers with a seed": Condition("""
import random
random.seed(0); torch.manual_seed(0)
for _ in range(2000):  # enough eager ops for windows that chance places
    step(ones)
    for _ in range(50):
        ones + 1
print(random.random(), torch.rand(1).item())
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
        reports=None,  # a snapshot may have come before
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
        reports=None,  # a snapshot may have come before
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

CONDITIONS = {**ENDINGS, **PROCESSES, **SURROUNDINGS}


# --- Running them -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", full_but(CONDITIONS, "SIGTERM"))
def test_hostile(run_forked: RunProgram, tmp_path: Path, name: str) -> None:
    condition = CONDITIONS[name]
    theirs, ours = run_both(run_forked, condition, tmp_path)
    same(condition, tmp_path, theirs, ours)


@pytest.mark.full
def test_python_isolated_and_optimized(run_program: RunProgram, tmp_path: Path) -> None:
    """``-OO`` is ``PYTHONOPTIMIZE=2``, which ``-I`` would not read."""
    condition = Condition("assert False\nprint(sys.flags.optimize, step(ones).tolist())")
    command = (sys.executable, "-I", "-OO", "{script}")
    theirs, ours = run_both(partial(run_program, command=command), condition, tmp_path)
    assert ours.stdout.startswith("2 [")
    same(condition, tmp_path, theirs, ours)


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
