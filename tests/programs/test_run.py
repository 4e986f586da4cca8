"""`run`: any command, as if we were not there, and a report of all its processes at the end."""

import ast
import os
import pty
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from paths import REPOSITORY
from programs import TOOL, Finished, RunProgram, read_reports

NOTHING = "instrumented: nothing observed: "
NO_TORCH = f"{NOTHING}no process imported torch in a Python that has this package\n"


def run(
    *arguments: object, cwd: Path | None = None, stdin: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TOOL, "run", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        input=stdin,
        env={**os.environ, "INSTRUMENTED_TABLES": "summary", **variables},
    )


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


# --- A Python program ---------------------------------------------------------------------------

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


@pytest.mark.full
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
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM); import time; time.sleep(600)",
        "import sys; sys.stdout.write('no newline')",
        "syntax error",
    ],
)
def test_run_ends_as_python_does(run_program: RunProgram, ending: str) -> None:
    theirs, ours = run_both(run_program, ending)
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)


@pytest.mark.full
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


def test_run_an_archive_of_any_name(tmp_path: Path) -> None:
    archive = tmp_path / "application"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("__main__.py", "import sys; print(sys.argv[1:], __name__)")
    python, ours = (
        subprocess.run([*command, archive, "a"], capture_output=True, text=True)
        for command in ((sys.executable,), (*TOOL, "run"))
    )
    assert ours.stdout == python.stdout == "['a'] __main__\n"
    assert (ours.returncode, ours.stderr) == (0, "")


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


@pytest.mark.full
def test_run_a_program_that_asks_for_reports_before_it_has_dynamo(run_program: RunProgram) -> None:
    """Our own backend is then the first to import Dynamo, which is when Inductor is replaced."""
    done = run_program(
        """
        import torch, instrumented_backend
        instrumented_backend.reset()
        torch.compile(lambda x: x + 1)(torch.ones(2))
        """,
        command=(*TOOL, "run", "{script}"),
    )
    assert done.report["summary"]["graph_calls"] == 1 and done.report["notes"] == []


def test_run_a_program_without_torch(run_program: RunProgram) -> None:
    theirs, ours = run_both(
        run_program, "import sys; print(sorted(m for m in sys.modules if m == 'torch'))"
    )
    assert ours.stdout == theirs.stdout == "[]\n"


# --- Any command --------------------------------------------------------------------------------


def test_a_command_is_found_as_a_shell_does(tmp_path: Path) -> None:
    """On the PATH; what is called like a Python file is the one in the working folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    executable(folder / "launch", f"#!{sys.executable}\nimport sys; print('PATH', sys.argv[1:])")
    executable(folder / "train.py", "#!/bin/sh\necho not Python")
    (tmp_path / "train.py").write_text("import sys; print('file', sys.argv[1:])")
    (tmp_path / "launch").write_text("print('not this')")
    path = f"{folder}:{os.environ['PATH']}"
    assert run("launch", "-a", "--", cwd=tmp_path, PATH=path).stdout == "PATH ['-a', '--']\n"
    assert run("train.py", "--", "b", cwd=tmp_path, PATH=path).stdout == "file ['--', 'b']\n"
    assert run("--", "train.py", cwd=tmp_path, PATH=path).stdout == "not Python\n"
    assert run("./launch", cwd=tmp_path, PATH=path).stdout == "not this\n"


def test_a_script_without_a_first_line(tmp_path: Path) -> None:
    script = executable(tmp_path / "start.sh", "echo $# $1; exit 4")
    done = run("--", script, "a b", "c")
    assert (done.returncode, done.stdout, done.stderr) == (4, "2 a b\n", "")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("nosuch", "nosuch: command not found"),
        ("./nosuch", "./nosuch: No such file or directory"),
        ("./plain.sh", "./plain.sh: Permission denied"),
        ("plain.sh", "plain.sh: Permission denied"),
    ],
)
def test_what_a_shell_would_not_run(tmp_path: Path, command: str, said: str) -> None:
    (tmp_path / "plain.sh").write_text("echo")
    path = f"{os.environ['PATH']}:."
    shell = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env={**os.environ, "PATH": path}, stderr=-3
    )
    done = run("--", command, cwd=tmp_path, PATH=path)
    assert (done.returncode, done.stdout) == (shell.returncode, "")
    assert done.stderr == f"instrumented-backend: {said}\n"


def test_a_python_file_that_is_not_there() -> None:
    python = subprocess.run([sys.executable, "no/such.py"], capture_output=True, text=True)
    done = run("no/such.py")
    assert (done.returncode, done.stderr) == (python.returncode, python.stderr)


@pytest.mark.parametrize("ending", ["exit 1", "exit 200", "kill -TERM $$", "kill -SEGV $$"])
def test_it_ends_as_its_command_does(ending: str) -> None:
    command = ("bash", "-c", f"echo failed >&2; {ending}")
    alone = subprocess.run(command, capture_output=True, text=True)
    done = run(*command)
    assert (done.returncode, done.stdout, done.stderr) == (alone.returncode, "", "failed\n")


def test_a_command_that_is_not_python() -> None:
    done = run("cat", stdin="from stdin")
    assert (done.returncode, done.stdout, done.stderr) == (0, "from stdin", NO_TORCH)
    assert run("cat", stdin="", INSTRUMENTED_TABLES="none").stderr == ""


def test_nothing_compiled(tmp_path: Path) -> None:
    (tmp_path / "eager.py").write_text("import torch; torch.ones(2) + 1")
    assert run("eager.py", cwd=tmp_path).stderr == (
        f"{NOTHING}1 process imported torch, and none compiled anything with Inductor\n"
    )


HANDLER = """
import os, signal, sys, time
def handle(number, frame):
    print(signal.Signals(number).name, flush=True)
    sys.exit(3)
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, handle)
print(os.getpid(), os.isatty(0), flush=True)
while True:  # Python may begin a sleep after a signal, and before it calls the handler
    time.sleep(0.1)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGINT", "SIGHUP"])
def test_signals_are_the_programs(run_program: RunProgram, name: str) -> None:
    def interact(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.Signals[name])

    command = (*TOOL, "run", "{script}")
    done = run_program(HANDLER, command=command, check=False, interact=interact)
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{name}\n", "")


def started(tmp_path: Path, **options: object) -> tuple[subprocess.Popen[str], int]:
    """`run` of a program that sleeps, and the program's own process id."""
    (tmp_path / "sleeps.py").write_text(HANDLER)
    command = [*TOOL, "run", str(tmp_path / "sleeps.py")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload]
    assert process.stdout is not None
    return process, int(process.stdout.readline().split()[0])


def test_killed_it_takes_the_program_along(tmp_path: Path) -> None:
    process, pid = started(tmp_path)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert process.stdout is not None and process.stdout.read() == ""  # closed by its end
    with pytest.raises(ProcessLookupError):
        for _ in range(1000):  # until somebody has asked for its exit code
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                raise ProcessLookupError
            time.sleep(0.01)


def test_it_stops_and_goes_on_with_the_program(tmp_path: Path) -> None:
    process, pid = started(tmp_path)
    os.kill(pid, signal.SIGSTOP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGTERM)
    assert process.communicate()[0] == "SIGTERM\n" and process.returncode == 3


def test_the_terminal_is_the_programs(tmp_path: Path) -> None:
    """Ctrl-C there reaches it once, and the process that waits for it lives on."""
    ours, theirs = pty.openpty()
    (tmp_path / "counts.py").write_text(
        "import os, signal, time\n"
        "seen = []\n"
        "signal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "print(os.isatty(0), os.tcgetpgrp(0) == os.getpgrp(), flush=True)\n"
        "while not seen: time.sleep(0.01)\n"
        "signal.sigtimedwait({signal.SIGCHLD}, 0.5)\n"
        "print(len(seen))\n"
    )
    take = (
        "import fcntl, os, sys, termios\n"
        "os.setsid()\n"
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    command = [sys.executable, "-c", take, *TOOL[1:], "run", str(tmp_path / "counts.py")]
    process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "True True\n"
    os.write(ours, b"\x03")
    assert process.communicate()[0] == "1\n" and process.returncode == 0
    os.close(ours)
    os.close(theirs)


COMPILES = """
import torch, sys
compiled = torch.compile(lambda x: x + 1)
for _ in range(int(sys.argv[1])):
    compiled(torch.ones(2))
"""


@pytest.mark.full
def test_one_summary_for_a_tree(tmp_path: Path) -> None:
    """Of a shell script's Python programs, one of them in a `run` of its own."""
    (tmp_path / "compiles.py").write_text(COMPILES)
    python, tool = sys.executable, " ".join(TOOL)
    script = executable(
        tmp_path / "start.sh",
        f"#!/bin/sh\nRANK=1 {python} compiles.py 2 && {tool} run compiles.py 3 && echo done\n",
    )
    reports = tmp_path / "reports"
    done = run("--", script, cwd=tmp_path, INSTRUMENTED_DIR=str(reports))
    assert (done.returncode, done.stdout) == (0, "done\n")
    # torch may have logged something before.
    assert f"instrumented: 2 processes of {script} rank pid" in " ".join(done.stderr.split())
    calls = {
        report["run"]["rank"]: report["summary"]["graph_calls"] for report in read_reports(reports)
    }
    assert calls == {1: 2, 0: 3}
    rows = [line.split() for line in done.stderr.partition("\n\n")[0].splitlines()]
    rows = [row for row in rows if row and row[0].isdigit()]
    pids = {report["run"]["rank"]: str(report["run"]["pid"]) for report in read_reports(reports)}
    assert [row[:4] for row in rows[-2:]] == [["0", pids[0], "1", "3"], ["1", pids[1], "1", "2"]]
    # The rank 0 speaks for all, and nobody else has spoken.
    assert done.stderr.count("instrumented: 1 graph") == 1
    assert "instrumented: 1 graph, 3 calls" in done.stderr


@pytest.mark.full
def test_torchs_autoload_may_be_off(tmp_path: Path) -> None:
    (tmp_path / "compiles.py").write_text(COMPILES)
    (tmp_path / "sitecustomize.py").write_text("print('their own')")
    done = run(
        *("compiles.py", 2),
        cwd=tmp_path,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
        PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    )
    assert done.returncode == 0 and set(done.stdout.splitlines()) == {"their own"}
    assert "instrumented: 1 graph, 2 calls" in done.stderr


def test_any_python_can_read_what_its_start_imports() -> None:
    source = (REPOSITORY / "instrumented_backend/startup/sitecustomize.py").read_text()
    ast.parse(source, feature_version=(3, 4))


def test_a_python_that_is_too_old() -> None:
    """Its start imports nothing of ours, and looks for the environment's own as without us."""
    startup = REPOSITORY / "instrumented_backend" / "startup"
    source = (
        "import sys\n"
        f"sys.path.insert(0, {str(startup)!r})\n"
        "sys.version_info = (3, 8, 18)\n"
        "try:\n    import sitecustomize\nexcept ImportError as error:\n    print(error.name)\n"
        "print([name for name in sys.modules if 'instrumented' in name])\n"
    )
    command = [sys.executable, "-S", "-I", "-c", source]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "sitecustomize\n[]\n", "")
