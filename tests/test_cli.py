"""The commands, as a user calls them."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Finished, RunProgram
from test_records import sample

TOOL = (sys.executable, "-m", "instrumented_backend")


def tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TOOL, *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("command", [(), ("demo",), ("run",), ("show",), ("trace",)])
def test_help(command: tuple[str, ...]) -> None:
    done = tool(*command, "--help")
    assert done.returncode == 0 and "Usage:" in done.stdout and done.stderr == ""


@pytest.mark.smoke
def test_demo(run_program: RunProgram) -> None:
    done = run_program("", command=(*TOOL, "demo", "--steps", "3"))
    assert done.stdout.count("loss") == 3
    assert "instrumented: 1 graph, 3 calls (+3 backward), 1 graph break" in done.stderr
    assert "demo.py" in done.stderr


# --- show ---------------------------------------------------------------------------------------


def test_show(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(sample().to_json())
    done = tool("show", str(path))
    assert done.returncode == 0
    assert done.stdout.startswith("instrumented: 1 graph, 3 calls (+2 backward)")
    both = tool("show", str(path), str(path), "--tables", "kernels")
    assert both.stdout.count("cpp_fused_add_0") == 2
    assert both.stdout.count("== rank 0, pid 17") == 2


def test_show_prints_what_the_program_printed(run_program: RunProgram, tmp_path: Path) -> None:
    done = run_program("""
        import torch
        torch.compile(lambda x: x + 1, backend="instrumented")(torch.ones(2))
    """)
    (path,) = (tmp_path / "reports0").glob("report.*.json")
    assert tool("show", str(path)).stdout == done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file"),
        ("not a report", "not JSON, or cut short"),
        (sample().to_json()[:300], "not JSON, or cut short"),
        ('{"schema_version": 2}', "schema_version is 2; this version reads 1 only"),
        ('{"a": 1}', "not a report of instrumented-backend"),
    ],
)
def test_show_refuses_in_one_line(tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "file.json"
    if content is not None:
        path.write_text(content)
    done = tool("show", str(path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert str(path) in done.stderr and said in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "x.json", "--tables", "nonsense"), "unknown table 'nonsense'; choose from"),
        (("nonsense",), "No such command 'nonsense'"),
        (("show",), "Missing argument"),
        (("run",), "name a SCRIPT to run, or a module with -m"),
        (("run", "/no/such/file.py"), "/no/such/file.py: no such file"),
        (("demo", "--device", "tpu"), "'cpu', 'cuda'"),
    ],
)
def test_bad_arguments(arguments: tuple[str, ...], said: str) -> None:
    done = tool(*arguments)
    assert done.returncode == 2
    assert said in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [("demo",), ("run", __file__)])
def test_bad_settings(run_program: RunProgram, command: tuple[str, ...]) -> None:
    done = run_program(
        "", command=(*TOOL, *command), env={"INSTRUMENTED_TABLES": "nonsense"}, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "INSTRUMENTED_TABLES='nonsense'" in done.stderr


# --- run ----------------------------------------------------------------------------------------

SCRIPT = """
    import pickle, sys
    import torch
    class Thing:
        pass
    def f(x):
        return x.sin() + 1
    compilers = {
        "default": torch.compile(f),
        "named": torch.compile(backend="inductor", mode="max-autotune-no-cudagraphs")(f),
        "other": torch.compile(f, backend="eager"),
    }
    class Module(torch.nn.Module):
        def forward(self, x):
            return x.cos() + 1
    module = Module()
    module.compile()
    print(sys.argv[1:], __name__, __file__ == sys.argv[0], sys.path[0], __spec__)
    print(sys.modules["__main__"].Thing is Thing, pickle.loads(pickle.dumps(Thing())).__class__)
    for name, compiled in compilers.items():
        torch._dynamo.reset()
        print(name, compiled(torch.ones(2)).tolist())
    print(module(torch.ones(2)).shape)
    raise SystemExit(int(sys.argv[1]))
"""


def run_both(run_program: RunProgram, source: str, *arguments: str) -> tuple[Finished, Finished]:
    theirs = run_program(source, arguments=arguments, check=False)
    script = (*TOOL, "run", "{script}")
    ours = run_program(source, arguments=arguments, command=script, check=False)
    # The two are written to files of their own.
    ours.stdout = ours.stdout.replace("program1", "program0")
    ours.stderr = ours.stderr.replace("program1", "program0")
    return theirs, ours


@pytest.mark.smoke
def test_run_is_python_with_another_backend(run_program: RunProgram) -> None:
    theirs, ours = run_both(run_program, SCRIPT, "7", "--flag", "-m")
    assert theirs.returncode == ours.returncode == 7
    assert ours.stdout == theirs.stdout
    assert theirs.reports == []
    # The default, the named one and the module; not the one that names another backend.
    assert ours.report["summary"]["graphs"] == 3
    assert ours.report["graphs"][1]["config"]["max_autotune"] == "True"


def test_run_shows_the_programs_own_traceback(run_program: RunProgram) -> None:
    source = """
        def g():
            raise KeyError("boom")
        g()
    """
    theirs, ours = run_both(run_program, source)
    assert theirs.returncode == ours.returncode == 1
    assert ours.stderr == theirs.stderr


@pytest.mark.parametrize(
    "ending",
    [
        "import signal; signal.raise_signal(signal.SIGINT)",
        "import os; os._exit(5)",
        "import sys; sys.exit('words')",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM); import time; time.sleep(9)",
        "import sys; sys.stdout.write('no newline')",
        "syntax error",
    ],
)
def test_run_ends_as_python_does(run_program: RunProgram, ending: str) -> None:
    theirs, ours = run_both(run_program, ending)
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)


def test_run_a_module(run_program: RunProgram, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text(
        "import sys, torch\n"
        "print(sys.argv[1:], __name__, __package__)\n"
        "torch.compile(lambda x: x + 1)(torch.ones(2))\n"
    )
    python = run_program("", command=(sys.executable, "-m", "package.train"), arguments=("a", "-b"))
    ours = run_program("", command=(*TOOL, "run", "-m", "package.train"), arguments=("a", "-b"))
    assert ours.stdout == python.stdout == "['a', '-b'] __main__ package\n"
    assert ours.report["summary"]["graphs"] == 1


def test_run_with_spawned_workers(run_program: RunProgram) -> None:
    source = """
        import multiprocessing
        def square(x):
            return x * x
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(2) as pool:
                print(pool.map(square, range(4)))
    """
    theirs, ours = run_both(run_program, source)
    assert ours.stdout == theirs.stdout == "[0, 1, 4, 9]\n"


def test_run_a_program_without_torch(run_program: RunProgram) -> None:
    theirs, ours = run_both(
        run_program, "import sys; print(sorted(m for m in sys.modules if m == 'torch'))"
    )
    assert ours.stdout == theirs.stdout == "[]\n"


def test_ctrl_c_in_the_demo(run_program: RunProgram) -> None:
    def interact(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        process.stdout.readline()
        # More than once: Dynamo's guards, in plain Inductor too, can swallow an exception that
        # a signal raises inside them.
        for _ in range(20):
            process.send_signal(signal.SIGINT)
            try:
                process.wait(0.5)
            except subprocess.TimeoutExpired:
                continue
            return

    command = (*TOOL, "demo", "--steps", "100000")
    done = run_program("", command=command, check=False, interact=interact, timeout=60)
    # 130, or the signal itself where another one comes while the process is ending.
    assert done.returncode in (130, -signal.SIGINT)
    assert "instrumented: 1 graph" in done.stderr and "Traceback" not in done.stderr
