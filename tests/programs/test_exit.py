"""However a program ends, its ending stays its own and the report comes once.

That exit code, stdout and files are Inductor's is tested in `test_hostile.py`, on more endings.
"""

import os
import signal
from pathlib import Path

import pytest
from programs import RunProgram
from speeds import full_but

COMPILED = """
    import os, signal, sys, threading, time, torch
    f = torch.compile(lambda x: x + 1, backend="instrumented")
    f(torch.ones(2))
"""
FIRST = "instrumented: 1 graph, 1 call (+0 backward), 0 graph breaks, 0 recompiles"


def once(stderr: str) -> bool:
    return stderr.count("instrumented: ") == 1 and FIRST in stderr


def sends(number: int) -> str:
    """What a program evaluates to get the signal half a second later, from another process."""
    command = f"f'sleep 0.5; kill -{int(number)} {{os.getpid()}}'"
    return f"__import__('subprocess').Popen(['sh', '-c', {command}])"


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("", 0),
        ("raise KeyError('boom')", 1),
        pytest.param("sys.exit(3)", 3, marks=pytest.mark.full),
        ("signal.raise_signal(signal.SIGTERM); time.sleep(600)", -signal.SIGTERM),
        ("import atexit; atexit.register(lambda: print('last'))", 0),
    ],
)
def test_endings(run_forked: RunProgram, ending: str, code: int) -> None:
    done = run_forked(COMPILED + f"\n    {ending}", check=False)
    assert done.returncode == code
    assert once(done.stderr)
    assert done.report["summary"]["graph_calls"] == 1
    if "boom" in ending:
        assert "KeyError: 'boom'" in done.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    "waiting",
    [
        "time.sleep(600)",
        "threading.Event().wait()",
        # Locked twice, a mutex keeps the main thread in native code, whatever the signal.
        "import ctypes; lock = ctypes.CDLL(None).pthread_mutex_lock; "
        "mutex = ctypes.create_string_buffer(64); lock(mutex); lock(mutex)",
        "\n    while True: f(torch.ones(2))",
        "torch.zeros(1).sum(); threading.Thread(target=time.sleep, args=(600,)).start()",
    ],
    ids=["sleep", "lock", "native", "busy", "other thread"],
)
def test_sigterm_without_a_handler(run_forked: RunProgram, waiting: str) -> None:
    done = run_forked(COMPILED + f"\n    {sends(signal.SIGTERM)}; {waiting}", check=False)
    assert done.returncode == -signal.SIGTERM
    assert done.stderr.count("instrumented: 1 graph") == 1
    assert done.report["summary"]["graphs"] == 1


SLOW_REPORT = """
    import os, signal, sys, threading, time
    from instrumented_backend.observe.exit import ExitHooks
    begun, killed = threading.Event(), threading.Event()
    def report():
        begun.set()
        killed.wait(600)
        time.sleep(0.5)
        print("reported", flush=True)
    ExitHooks(report, lambda: None).install()
    def die():
        os.kill(os.getpid(), signal.SIGTERM)
        killed.set()
"""


@pytest.mark.parametrize(
    "ending",
    [
        "threading.Thread(target=lambda: begun.wait() and die(), daemon=True).start()",
        "die(); begun.wait(); raise ValueError",
    ],
    ids=["SIGTERM while reporting", "an exception while dying of SIGTERM"],
)
def test_two_endings_at_once(run_forked: RunProgram, ending: str) -> None:
    """Neither cuts the report of the other short."""
    done = run_forked(SLOW_REPORT + f"    {ending}", check=False)
    assert done.stdout == "reported\n"
    assert done.returncode == -signal.SIGTERM


@pytest.mark.full
@pytest.mark.parametrize("when", ["before", "after"])
def test_sigterm_with_the_programs_handler(run_forked: RunProgram, when: str) -> None:
    handler = "signal.signal(signal.SIGTERM, lambda *_: (print('mine', flush=True), sys.exit(9)))"
    source = COMPILED
    if when == "before":
        source = source.replace("f = torch", f"{handler}; f = torch")
    else:
        source += f"\n    {handler}"
    done = run_forked(source + f"\n    {sends(signal.SIGTERM)}; time.sleep(600)", check=False)
    assert done.returncode == 9
    assert done.stdout == "mine\n"
    assert once(done.stderr)


def test_sigterm_ignored_by_the_program(run_forked: RunProgram) -> None:
    done = run_forked(
        COMPILED
        + f"""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    {sends(signal.SIGTERM)}.wait(); print("alive")
    """
    )
    assert done.stdout == "alive\n"
    assert once(done.stderr)


@pytest.mark.full
def test_ctrl_c_handled_by_the_program(run_forked: RunProgram) -> None:
    done = run_forked(
        COMPILED
        + f"""
    try:
        {sends(signal.SIGINT)}; time.sleep(600)
    except KeyboardInterrupt:
        print("saved")
    """
    )
    assert done.stdout == "saved\n"
    assert once(done.stderr)


def test_sigterm_beside_an_event_loop(run_forked: RunProgram) -> None:
    """asyncio takes the one wake-up descriptor of a process."""
    done = run_forked(
        f"""
        import asyncio, os, torch, signal
        async def main():
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, int)
            f = torch.compile(lambda x: x + 1, backend="instrumented")
            f(torch.ones(2))
            signal.raise_signal(signal.SIGUSR1)
            await asyncio.sleep(0.1)
            {sends(signal.SIGTERM)}
            await asyncio.sleep(600)
        asyncio.run(main())
        """,
        check=False,
    )
    assert done.returncode == -signal.SIGTERM
    assert once(done.stderr)


@pytest.mark.full
def test_forked_children_say_nothing_of_their_parent(run_forked: RunProgram) -> None:
    done = run_forked(
        COMPILED
        + """
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            f(torch.ones(2))
            sys.exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    """
    )
    assert once(done.stderr)
    assert done.report["summary"]["graph_calls"] == 1


@pytest.mark.full
def test_a_forked_child_dies_of_sigterm_and_its_parent_lives(run_forked: RunProgram) -> None:
    done = run_forked(
        COMPILED
        + """
    for wait in [0.1, 0.0] * 20:
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
            os._exit(0)
        time.sleep(wait)
        os.kill(pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
    time.sleep(0.2)
    print("parent lives")
    """
    )
    assert done.stdout == "parent lives\n"
    assert once(done.stderr)


@pytest.mark.full
def test_a_forked_child_that_compiles_reports_for_itself(run_forked: RunProgram) -> None:
    done = run_forked("""
        import multiprocessing, torch
        f = torch.compile(lambda x: x + 1, backend="instrumented")
        def work():
            g = torch.compile(lambda x: x * 2, backend="instrumented")
            g(torch.ones(2)), g(torch.ones(2))
        torch.set_num_threads(1)
        context = multiprocessing.get_context("fork")
        child = context.Process(target=work)
        child.start(); child.join()
        assert child.exitcode == 0
        f(torch.ones(2))
    """)
    assert sorted(report["summary"]["graph_calls"] for report in done.reports) == [1, 2]
    assert done.stderr.count("instrumented: 1 graph") == 2


@pytest.mark.full
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_child_that_imports_the_program_before_it_is_called_a_child(
    run_program: RunProgram, tmp_path: Path, method: str
) -> None:
    """A fork server ends its children with os._exit. It says nothing itself of what it imports."""
    wraps = 'compiled = torch.compile(lambda x: x + 1, backend="instrumented")'
    (tmp_path / "preloaded.py").write_text(f"import torch\n{wraps}\n")
    done = run_program(f"""
        import multiprocessing, torch
        {wraps}
        def work(calls):
            for _ in range(calls):
                compiled(torch.ones(2))
        if __name__ == "__main__":
            context = multiprocessing.get_context("{method}")
            context.set_forkserver_preload(["preloaded"])
            for calls in (2, 3):
                child = context.Process(target=work, args=(calls,))
                child.start(); child.join()
                assert child.exitcode == 0
    """)
    assert sorted(report["summary"]["graph_calls"] for report in done.reports) == [0, 2, 3]
    assert {report["run"]["status"] for report in done.reports} == {"ended"}
    assert done.stderr.count("instrumented: 1 graph") == 2
    assert done.stderr.count("instrumented: nothing was compiled") == 1


def test_a_program_without_torch_compile_says_nothing(run_forked: RunProgram) -> None:
    done = run_forked("""
        import torch, instrumented_backend
        torch.ones(3) + 1
        print("done")
    """)
    assert (done.stdout, done.stderr, done.reports) == ("done\n", "", [])


def test_only_rank_0_prints(run_forked: RunProgram) -> None:
    done = run_forked(COMPILED, env={"RANK": "1"})
    assert done.stderr == ""
    assert done.report["run"]["rank"] == 1


@pytest.mark.full
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-16"])
def test_a_stderr_of_another_encoding(
    run_forked: RunProgram, tmp_path: Path, encoding: str
) -> None:
    log = tmp_path / "log.txt"
    run_forked(f"""{COMPILED}
    sys.stderr = open("{log}", "w", encoding="{encoding}")
    """)
    said = log.read_text(encoding=encoding)
    assert said.startswith("instrumented: 1 graph, ") and "next: " in said


@pytest.mark.parametrize("tables", full_but(["none", "summary", "all"], "all"))
def test_tables(run_forked: RunProgram, tables: str) -> None:
    done = run_forked(COMPILED, env={"INSTRUMENTED_TABLES": tables})
    assert (FIRST in done.stderr) == (tables != "none")
    assert ("Graphs that Dynamo captured" in done.stderr) == (tables == "all")


@pytest.mark.full
def test_a_deleted_working_folder_and_a_relative_report_folder(run_forked: RunProgram) -> None:
    done = run_forked(
        """
        import os, shutil, tempfile, torch
        home = os.getcwd()
        folder = tempfile.mkdtemp()
        f = torch.compile(lambda x: x + 1, backend="instrumented")
        os.chdir(folder); os.rmdir(folder)
        f(torch.ones(2))
        """,
        env={"INSTRUMENTED_DIR": "relative"},
    )
    assert done.stderr.startswith("instrumented: 1 graph")


def test_a_report_folder_that_fails_at_the_end(run_forked: RunProgram) -> None:
    done = run_forked(
        """
        import os, shutil, torch
        f = torch.compile(lambda x: x + 1, backend="instrumented")
        f(torch.ones(2))
        folder = os.environ["INSTRUMENTED_DIR"]
        shutil.rmtree(folder)
        open(folder, "w").close()
        """
    )
    assert "lost: report files: " in done.stderr
    assert FIRST in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.full
def test_killed_while_writing(run_forked: RunProgram, tmp_path: Path) -> None:
    """Files are whole under their names, and the next program takes away what was begun."""
    folder = tmp_path / "reports"
    env = {"INSTRUMENTED_TABLES": "all", "INSTRUMENTED_DIR": str(folder)}
    for files in (0, 1, 4):
        done = run_forked(
            COMPILED
            + f"""
    replace, left = os.replace, [{files}]
    def kill_at_last(part, path):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(part, path)
    os.replace = kill_at_last
            """,
            env=env,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL
        named = [path for path in folder.iterdir() if path.suffix != ".part"]
        assert (len(named), len(list(folder.iterdir()))) == (files, files + 1)
        assert all(path.read_text().endswith("\n") for path in named)
        for path in named:
            path.unlink()
    run_forked(COMPILED, env=env)
    assert len(list(folder.glob("report.*.json"))) == 1
    assert len(list(folder.glob("*.csv"))) > 4
    assert not list(folder.glob(".*"))


def test_a_report_at_any_moment(run_forked: RunProgram) -> None:
    done = run_forked("""
        import torch, instrumented_backend
        f = torch.compile(lambda x: x + 1, backend="instrumented")
        for calls in range(1, 4):
            f(torch.ones(2))
            assert instrumented_backend.report().summary.graph_calls == calls
    """)
    assert done.report["summary"]["graph_calls"] == 3


@pytest.mark.full
def test_pids_differ(run_forked: RunProgram) -> None:
    done = run_forked(COMPILED)
    assert done.report["run"]["pid"] != os.getpid()
