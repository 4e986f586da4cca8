"""Ways to compile nothing, each named with its cause and its line; and programs left in peace."""

import pytest
import torch
from asked import SETUP, first_line, line_of, only
from packaging.version import Version
from programs import Finished, RunProgram
from speeds import full_but

from instrumented_backend.records import notes

TORCH = Version(Version(torch.__version__).base_version)


def check(
    done: Finished, program: str, *, outcome: str, calls: int, code: str | None = None
) -> str:
    """What holds for all: the place of torch.compile, the calls, and the first line."""
    record = only(done)
    assert record["outcome"] == outcome and record["calls"] == calls
    assert record["line"] == line_of(program, "asked") and record["reason_code"] == code
    assert record["graphs"] == [] and record["captured_ops"] == 0
    said = first_line(done)
    assert said.startswith("nothing was compiled: ")
    assert f":{record['line']} " in said and record["call"] in said
    if calls:
        assert f"was called {calls} time" in said and record["reason"].rstrip(".") in said
    return said


NOTHING = {
    "never called": (
        """
@torch.compile(backend="instrumented")  # asked
def train_step(x):
    return x + 1
""",
        ("never called", 0, None),
        "@torch.compile",
    ),
    "disabled": (
        """
@torch.compiler.disable
def inner(x):
    return x + 1

def step(x):
    return inner(x)  # cause

step = torch.compile(step, backend="instrumented")  # asked
for _ in range(3):
    step(x)
""",
        ("ran eagerly", 3, notes.DISABLED),
        "torch.compile(step)",
    ),
    "disabled model": (
        """
class Model(nn.Module):
    @torch.compiler.disable  # cause
    def forward(self, x):
        return x + 1

model = torch.compile(Model(), backend="instrumented")  # asked
model(x)
""",
        ("ran eagerly", 1, notes.DISABLED),
        "torch.compile(Model())",
    ),
    "break in a loop": (
        """
def step(x):
    for _ in range(3):
        torch._dynamo.graph_break()  # cause
        x = x + 1
    return x

step = torch.compile(step, backend="instrumented")  # asked
step(x), step(x)
""",
        ("ran eagerly", 2, notes.GRAPH_BREAK),
        "torch.compile(step)",
    ),
    "stance": (
        """
step = torch.compile(lambda x: x + 1, backend="instrumented")  # asked
with torch.compiler.set_stance("force_eager"):
    for _ in range(4):
        step(x)
""",
        ("ran eagerly", 4, notes.STANCE),
        "torch.compile(lambda x: x + 1)",
    ),
    "generator": (
        """
def steps(x):  # cause
    yield x + 1

steps = torch.compile(steps, backend="instrumented")  # asked
list(steps(x))
""",
        ("ran eagerly", 1, notes.NOT_COMPILABLE),
        "torch.compile(steps)",
    ),
    "no ops": (
        """
def maybe(x, wanted):  # cause
    return x + 1 if wanted else x

maybe = torch.compile(maybe, backend="instrumented")  # asked
maybe(x, False), maybe(x, False)
""",
        ("ran eagerly", 2, notes.NOTHING_TO_COMPILE),
        "torch.compile(maybe)",
    ),
    "suppressed errors": (
        """
@torch.library.custom_op("ours::plus", mutates_args=())
def plus(x: torch.Tensor) -> torch.Tensor:  # no fake: Dynamo fails
    return x + 1

def step(x):  # cause
    return plus(x)

torch._dynamo.config.suppress_errors = True
step = torch.compile(step, backend="instrumented")  # asked
step(x)
""",
        ("ran eagerly", 1, notes.NOT_COMPILABLE),
        "torch.compile(step)",
    ),
    "Inductor fails": (
        """
def fails(*args, **kwargs):
    raise RuntimeError("no such lowering")

def step(x):  # cause
    return x + 1

torch._dynamo.config.suppress_errors = True
torch._inductor.compile_fx.compile_fx_inner = fails
step = torch.compile(step, backend="instrumented")  # asked
step(x), step(x)
""",
        ("ran eagerly", 2, notes.NOT_COMPILABLE),
        "torch.compile(step)",
    ),
    "failing stance": (
        """
step = torch.compile(lambda x: x + 1, backend="instrumented")  # asked
with torch.compiler.set_stance("fail_on_recompile"):
    for _ in range(2):
        try:
            step(x)
        except RuntimeError as error:
            assert "fail_on_recompile" in str(error)
""",
        ("raised", 2, notes.STANCE),
        "torch.compile(lambda x: x + 1)",
    ),
    "raises": (
        """
def step(x):
    torch._dynamo.graph_break()  # cause
    return x + 1

step = torch.compile(step, backend="instrumented", fullgraph=True)  # asked
try:
    step(x)
except torch._dynamo.exc.Unsupported:
    pass
""",
        ("raised", 1, notes.NOT_COMPILABLE),
        "torch.compile(step)",
    ),
}


@pytest.mark.parametrize(
    "way", full_but(NOTHING, "never called", "disabled model", "Inductor fails", "raises")
)
def test_a_way_to_compile_nothing(way: str, run_forked: RunProgram) -> None:
    source, (outcome, calls, code), call = NOTHING[way]
    program = SETUP + source
    done = run_forked(program)
    said = check(done, program, outcome=outcome, calls=calls, code=code)
    record = only(done)
    assert (record["call"], record["receiver"]) == (call, None)
    assert record["eager_calls"] == (0 if outcome == "raised" else calls)
    if "# cause" in program:
        assert record["reason_line"] == line_of(program, "cause")
        assert f":{record['reason_line']}" in said.partition(record["call"])[2]


@pytest.mark.full
def test_a_sequential_compiled_in_place(run_forked: RunProgram) -> None:
    """What it comes to is torch's to say: from 2.14 or 2.15 on, it makes a graph."""
    program = SETUP + (
        "model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())\n"
        'model.compile(backend="instrumented")  # asked\n'
        "for _ in range(5):\n    model(x)\n"
    )
    done = run_forked(program)
    record = only(done)
    assert record["call"] == "model.compile()" and record["target"] == "Sequential"
    assert record["receiver"] == "model"
    assert record["calls"] == 5
    if record["graphs"]:
        assert Version("2.14") <= TORCH and record["outcome"] == "compiled"
        assert first_line(done).startswith("1 graph, 5 calls")
    else:
        said = check(done, program, outcome="ran eagerly", calls=5, code=notes.TORCHS_FRAMES)
        assert "use torch.compile(model), or compile the module that calls it" in said


COUNTED = """
from torch.utils.flop_counter import FlopCounterMode

class Model(nn.Module):
    def forward(self, x):
        return x @ x.t()

import warnings
warnings.simplefilter("ignore")
model = torch.compile({model}, backend="instrumented")  # asked
for _ in range({before}):
    model(x)
with FlopCounterMode(display=False):
    for _ in range(3):
        model(x)
"""


@pytest.mark.skipif(Version("2.13") > TORCH, reason="Dynamo tells nobody before torch 2.13")
@pytest.mark.parametrize("model", full_but(["Model()", "nn.Linear(4, 4)"], "Model()"))
def test_in_a_dispatch_mode(model: str, run_forked: RunProgram) -> None:
    """The mode is the cause; a module of torch's own would compile without it."""
    program = SETUP + COUNTED.format(model=model, before=0)
    said = check(run_forked(program), program, outcome="ran eagerly", calls=3, code=notes.SKIPPED)
    assert "dispatch mode" in said and "own frames" not in said


@pytest.mark.full
@pytest.mark.skipif(Version("2.13") > TORCH, reason="Dynamo tells nobody before torch 2.13")
def test_calls_in_a_dispatch_mode_after_others(run_forked: RunProgram) -> None:
    program = SETUP + COUNTED.format(model="Model()", before=2)
    done = run_forked(program)
    record = only(done)
    assert (record["outcome"], record["calls"], record["eager_calls"]) == ("partly eager", 5, 3)
    assert "and ran eagerly in 3 of them: Dynamo skips it: " in first_line(done)


@pytest.mark.full
def test_a_sequential_in_ddp(run_forked: RunProgram) -> None:
    program = (
        SETUP
        + """
import tempfile
store = f"file://{tempfile.mkdtemp()}/store"
torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
ddp = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
model = torch.compile(ddp, backend="instrumented")  # asked
for _ in range(3):
    model(x)
torch.distributed.destroy_process_group()
"""
    )
    done = run_forked(program)
    said = check(done, program, outcome="ran eagerly", calls=3, code=notes.TORCHS_WRAPPER)
    assert "DistributedDataParallel's own frames are torch's" in said
    assert "compile the module inside it" in said


def test_what_inductor_raised_is_the_reason(run_forked: RunProgram) -> None:
    done = run_forked(SETUP + NOTHING["Inductor fails"][0])
    assert only(done)["reason"] == "Inductor raised RuntimeError: no such lowering"


OFF = {
    "by name": ('backend="instrumented"', {}),
    "adopted": ("", {"INSTRUMENTED_ADOPT": "1"}),
}


@pytest.mark.parametrize("way", full_but(OFF, "by name"))
def test_switched_off_by_the_environment(way: str, run_forked: RunProgram) -> None:
    """torch.compile returns what it is given: no call can be counted."""
    arguments, env = OFF[way]
    program = SETUP + (
        "import instrumented_backend\n"
        f"step = torch.compile(lambda x: x + 1, {arguments})  # asked\n"
        "class Model(nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x + 1\n"
        "model = Model()\n"
        f"model.compile({arguments})\n"
        "left = torch.compile(lambda x: x, disable=True)\n"
        "print(step(x).sum().item(), model(x).sum().item(), left(x) is x)\n"
    )
    done = run_forked(program, env={"TORCHDYNAMO_DISABLE": "1", **env})
    assert done.stdout == "16.0 16.0 True\n"
    first, second = done.report["compiled"]
    assert first["line"] == line_of(program, "asked") and second["call"] == "model.compile()"
    for record in (first, second):
        assert (record["outcome"], record["calls"]) == ("ran eagerly", None)
        assert record["reason_code"] == notes.SWITCHED_OFF
    said = first_line(done)
    assert said.startswith("nothing was compiled: ") and "TORCHDYNAMO_DISABLE=1 is set" in said


def test_a_library_is_not_told_what_the_environment_switched_off(run_forked: RunProgram) -> None:
    done = run_forked(LIBRARY, env={"TORCHDYNAMO_DISABLE": "1"})
    assert "instrumented" not in done.stderr and done.reports == []


def test_dynamo_switched_off(run_forked: RunProgram) -> None:
    """From torch 2.13 on Dynamo says so at the call."""
    program = SETUP + (
        'step = torch.compile(lambda x: x + 1, backend="instrumented")  # asked\n'
        "torch._dynamo.config.disable = True\nstep(x)\n"
    )
    told = Version("2.13") <= TORCH
    code = notes.SKIPPED if told else notes.SWITCHED_OFF
    check(run_forked(program), program, outcome="ran eagerly", calls=1, code=code)


SILENT = {
    "plain": "print((x + 1).sum())",
    "imports us": "import instrumented_backend; print((x + 1).sum())",
    "loads the backend": "import instrumented_backend.backend; print((x + 1).sum())",
    "another backend": 'f = torch.compile(lambda x: x + 1, backend="eager"); print(f(x).sum())',
    "another backend, never called": 'torch.compile(lambda x: x + 1, backend="eager")',
    "disable=True": (
        'f = torch.compile(lambda x: x + 1, backend="instrumented", disable=True); f(x)'
    ),
}


@pytest.mark.parametrize("program", full_but(SILENT, "plain", "another backend"))
def test_silence(program: str, run_forked: RunProgram) -> None:
    done = run_forked(f"import torch\nx = torch.ones(2)\n{SILENT[program]}\n")
    assert "instrumented" not in done.stderr and done.reports == []


LIBRARY = """
import importlib.abc, importlib.util, sys, sysconfig, torch

class Library(importlib.abc.SourceLoader):
    def get_filename(self, name):
        return sysconfig.get_paths()["purelib"] + "/some_library.py"

    def get_data(self, path):
        return b'import torch; f = torch.compile(lambda x: x + 1, backend="instrumented")'

    def find_spec(self, name, path, target=None):
        if name == "some_library":
            return importlib.util.spec_from_loader(name, self)

sys.meta_path.insert(0, Library())
import some_library
"""


@pytest.mark.full
def test_a_library_that_wraps_what_nobody_calls(run_forked: RunProgram) -> None:
    done = run_forked(LIBRARY)
    assert "instrumented" not in done.stderr and done.reports == []


def test_a_library_whose_function_ran_eagerly(run_forked: RunProgram) -> None:
    program = 'torch.compiler.set_stance("force_eager"); some_library.f(torch.ones(2))'
    record = only(run_forked(f"{LIBRARY}{program}"))
    assert record["outcome"] == "ran eagerly" and record["file"].endswith("/some_library.py")
    assert record["line"] == 1


@pytest.mark.full
def test_a_child_that_imports_the_same_modules(run_program: RunProgram) -> None:
    done = run_program(
        """
        import multiprocessing, torch

        @torch.compile(backend="instrumented")
        def step(x):
            return x + 1

        def nothing():
            pass

        if __name__ == "__main__":
            child = multiprocessing.get_context("spawn").Process(target=nothing)
            child.start()
            child.join()
        """
    )
    assert done.stderr.count("nothing was compiled") == 1 and len(done.reports) == 1
    assert "was never called" in first_line(done)
