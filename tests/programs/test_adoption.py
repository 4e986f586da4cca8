"""`INSTRUMENTED_ADOPT=1`: what a program gives to Inductor is ours, to the letter."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from paths import REPOSITORY
from programs import RunProgram
from speeds import full_but

ADOPTED = {"INSTRUMENTED_ADOPT": "1"}


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder to be first on the path, in which the package is installed as far as torch asks."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "site"
    info = folder / "instrumented_backend-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: instrumented-backend\n")
    points = project["entry-points"]["torch.backends"]
    lines = ["[torch.backends]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    autoload = "instrumented_backend_autoload.py"
    (folder / autoload).write_text((REPOSITORY / autoload).read_text())
    return folder


def path(*folders: Path) -> str:
    return os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])


@pytest.mark.full
def test_a_program_and_its_children(run_program: RunProgram, installed: Path) -> None:
    done = run_program(
        """
        import subprocess, sys, torch
        compiled = torch.compile(lambda x: x + 1)
        for _ in range(int(sys.argv[1])):
            compiled(torch.ones(2))
        if sys.argv[1] == "2":
            subprocess.run([sys.executable, sys.argv[0], "3"], check=True)
        """,
        arguments=("2",),
        env={**ADOPTED, "PYTHONPATH": path(installed, REPOSITORY)},
    )
    assert sorted(report["summary"]["graph_calls"] for report in done.reports) == [2, 3]
    assert done.stderr.count("instrumented: 1 graph") == 2  # without `run`, each has its own


BROKEN = {
    "missing": None,
    "cannot be imported": "import no_such_module",
    "not even Python": "def",
    "of another release": "",
}


@pytest.mark.parametrize("name", full_but(BROKEN, "missing"))
@pytest.mark.parametrize("asked", full_but(["0", "1", "maybe"], "1"))
def test_a_broken_installation(installed: Path, tmp_path: Path, name: str, asked: str) -> None:
    """torch imports; what is missing is said where it was asked for."""
    package = BROKEN[name]
    folder = installed / "instrumented_backend"
    folder.mkdir()
    (folder / "__init__.py").write_text(package if package is not None else "raise ImportError")
    if package is None:  # any other installation of it is kept from being found
        (folder / "__init__.py").unlink()
        hidden = "import sys; sys.modules['instrumented_backend'] = None\n"
        (installed / "sitecustomize.py").write_text(hidden)
    done = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.ones(1).item())"],
        env={**os.environ, "INSTRUMENTED_ADOPT": asked, "PYTHONPATH": path(installed)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "1.0\n")
    if asked == "0" or package == "":
        assert done.stderr == ""
    else:
        assert done.stderr.startswith("instrumented: not observed: ")
        assert done.stderr.count("\n") == 1


@pytest.mark.full
def test_a_broken_installation_with_nobody_to_tell(installed: Path, tmp_path: Path) -> None:
    """As in a daemon."""
    folder = installed / "instrumented_backend"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise ImportError")
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.stderr.close(); import torch; print(1)"],
        env={**os.environ, **ADOPTED, "PYTHONPATH": path(installed)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


@pytest.mark.full
def test_a_backend_that_cannot_be_imported(run_forked: RunProgram) -> None:
    done = run_forked(
        """
        import sys, torch
        import instrumented_backend
        sys.modules["instrumented_backend.observe.session"] = None
        print(torch.compile(lambda x: x + 1)(torch.ones(2)).tolist())
        print(torch._inductor.compile(torch.fx.symbolic_trace(lambda x: (x + 1,)), [torch.ones(2)]))
        """,
        env=ADOPTED,
    )
    assert done.stdout.startswith("[2.0, 2.0]\n") and done.reports == []
    assert done.stderr.count("instrumented: not observed: ") == 1


@pytest.mark.full
def test_a_value_that_is_none(run_forked: RunProgram) -> None:
    done = run_forked(
        """
        import torch, instrumented_backend
        print("imported", flush=True)
        torch.compile(lambda x: x + 1)
        """,
        env={"INSTRUMENTED_ADOPT": "maybe"},
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "imported\n")
    assert done.stderr == "INSTRUMENTED_ADOPT='maybe': choose one of 0, 1\n"


@pytest.mark.parametrize("variables", [{}, {**ADOPTED, "INSTRUMENTED_DISABLE": "1"}])
def test_not_asked_for(run_forked: RunProgram, variables: dict[str, str]) -> None:
    done = run_forked(
        """
        import sys, torch, instrumented_backend
        torch.compile(lambda x: x + 1)(torch.ones(2))
        torch._inductor.compile(torch.fx.symbolic_trace(lambda x: (x + 1,)), [torch.ones(2)])
        """,
        env=variables,
    )
    assert done.reports == [] and done.stderr == ""


EVERY_WAY = """
    import torch, instrumented_backend
    def f(x):
        return x.sin() + 1
    x = torch.ones(3)
    class Module(torch.nn.Module):
        def forward(self, x):
            return x.cos()
    module, whole = Module(), torch.nn.ModuleList([Module(), Module()])
    module.compile()
    for part in whole:  # regional compilation
        part.compile(dynamic=False)
    named = torch.compile(backend="inductor", mode="max-autotune-no-cudagraphs")(f)
    tuned = torch.compile(f, options={"epilogue_fusion": False})
    calls = [torch.compile(f), module, *whole, named, tuned, torch._dynamo.optimize("inductor")(f)]
    others = [torch.compile(f, backend="eager"), torch.compile(f, disable=True)]
    if hasattr(torch.compiler, "set_default_backend"):
        torch.compiler.set_default_backend("eager")
        others.append(torch.compile(f))
        torch.compiler.set_default_backend("inductor")
        calls.append(torch.compile(f))
        torch.compiler.set_default_backend("instrumented")
        calls.append(torch.compile(f))
    for call in (*calls, *others):
        torch._dynamo.reset()
        call(x)
    print(len(calls))
    def error(**arguments):
        try:
            torch.compile(f, **arguments)
        except Exception as error:
            print(type(error), error)
    error(mode="nonsense")
    error(options={"nonsense": 1})
    error(options={"max_autotune": "yes"})
    error(mode="default", options={"max_autotune": True})
    def breaks(x):
        return x + 1 if x.sum() > 0 else x
    try:
        torch.compile(breaks, fullgraph=True)(x)
    except Exception as error:
        print(type(error))
"""


@pytest.mark.full
def test_every_way_to_inductor(run_forked: RunProgram) -> None:
    plain = run_forked(EVERY_WAY)
    ours = run_forked(EVERY_WAY, env=ADOPTED)
    assert ours.stdout == plain.stdout
    graphs = ours.report["graphs"]
    assert [graph["calls"] for graph in graphs] == [1] * int(ours.stdout.split()[0])
    assert graphs[4]["config"]["max_autotune"] == "True"
    assert graphs[5]["config"] == {"epilogue_fusion": "False"}


DIRECTLY = """
    import sys, torch, instrumented_backend
    from torch._dynamo.backends.registry import lookup_backend
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner
    from torch.fx.experimental.proxy_tensor import make_fx
    x = torch.ones(5)
    def graph(number):
        return make_fx(lambda x: (x.cos() * number,))(x)
    def inner(*args, **kwargs):  # an engine's own step
        print("inner", len(args))
        return compile_fx_inner(*args, **kwargs)
    def backend(gm, inputs):  # an engine's own backend
        return lookup_backend("inductor")(gm, inputs)
    compiled = compile_fx(graph(2), [x])
    patched = compile_fx(graph(3), [x], inner, config_patches={"epilogue_fusion": False})
    standalone = torch._inductor.standalone_compile(
        graph(4), [x], dynamic_shapes="from_example_inputs", options={}
    )
    own = torch.compile(lambda x: x.exp() + 5, backend=backend)
    for number, call in enumerate((compiled, patched, standalone, own), 1):
        for _ in range(number):
            print(call(x))
    standalone.save(path="artifact", format="unpacked")
    print(torch._inductor.CompiledArtifact.load(path="artifact", format="unpacked")(x))
    bundled = torch._inductor.standalone_compile(
        graph(6), [x], dynamic_shapes="from_example_inputs", options={}, aot=True
    )
    bundled.save(path="bundle", format="binary")
    print(bundled(x))
    try:
        compile_fx(nonsense=1)
    except TypeError:
        print("TypeError")
"""


@pytest.mark.full
def test_inductor_called_directly(run_forked: RunProgram, cold_cache: Path) -> None:
    """As serving engines do; what is loaded or saved in one piece is left alone."""
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(cold_cache)}
    plain = run_forked(DIRECTLY, env=cache)
    ours = run_forked(DIRECTLY, env={**ADOPTED, **cache})
    assert ours.stdout.replace("inner 2\n", "") == plain.stdout.replace("inner 2\n", "")
    assert plain.stdout.startswith("inner 2\n")
    graphs = ours.report["graphs"]
    assert [graph["calls"] for graph in graphs] == [1, 2, 3, 4]
    assert graphs[1]["config"] == {"epilogue_fusion": "False"}
    # What plain Inductor left in its caches is what ours finds there.
    assert {graph["cache"] for graph in graphs} <= {"hit", "bypass"}
    assert ours.report["notes"] == []


def test_the_default_backend_is_known() -> None:
    """Which torch has it, for the test above."""
    has = hasattr(torch.compiler, "set_default_backend")
    assert has == (torch.torch_version.TorchVersion(torch.__version__) >= "2.13")
