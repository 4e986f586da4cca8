"""The report's file while the program runs, and what is left of it where the program is killed.

That it is whole and true at random moments is a benchmark's: `benchmarks/survive.py`.
"""

import signal
import sys
from pathlib import Path

import pytest
from current_file import PROGRAM
from paths import BENCHMARKS
from programs import NO_GPU, TOOL, RunProgram

from instrumented_backend.observe.parsing import THREADS_MAY_PARSE
from instrumented_backend.records import read_report

KILLS = {
    "os._exit(7)": 7,
    "os.abort()": -signal.SIGABRT,
    "os.kill(os.getpid(), signal.SIGKILL)": -signal.SIGKILL,
    "ctypes.string_at(0)": -signal.SIGSEGV,
    "os.kill(os.getpid(), signal.SIGHUP); time.sleep(60)": -signal.SIGHUP,
    "os.kill(os.getpid(), signal.SIGQUIT); time.sleep(60)": -signal.SIGQUIT,
    "signal.signal(signal.SIGALRM, lambda *_: os._exit(7)); signal.raise_signal(14)": 7,
    "threading.Thread(target=os._exit, args=(7,)).start(); time.sleep(60)": 7,
    "import atexit; atexit.register(os._exit, 7)": 7,
    "resource.setrlimit(resource.RLIMIT_CPU, (1, 1)); exec('while True: pass')": -signal.SIGKILL,
}


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(ending, marks=() if number == 0 else pytest.mark.full)
        for number, ending in enumerate(KILLS)
    ],
)
def test_what_is_left(run_forked: RunProgram, ending: str) -> None:
    """Three calls are in the file before five more are made; the program dies at once."""
    done = run_forked(PROGRAM + f"\n    train(5); {ending}", check=False)
    assert done.returncode == KILLS[ending]
    assert done.report["run"]["status"] == "running"
    assert done.report["run"]["seen_at"] > 1.7e9
    assert 3 <= done.report["summary"]["graph_calls"] <= 8
    # What is estimated may be of an earlier moment.
    calls = done.report["summary"]["graph_calls"]
    assert done.report["ops"]["captured"]["ops"] in range(6, 2 * calls + 1, 2)
    assert len(done.report["graphs"]) == 1 and done.report["kernels"]
    assert "instrumented:" not in done.stderr


@pytest.mark.full
def test_the_end_of_the_program_has_the_last_word(run_forked: RunProgram) -> None:
    done = run_forked(PROGRAM + "\n    train(5)")
    assert done.report["run"]["status"] == "ended"
    assert done.report["summary"]["graph_calls"] == 8


@pytest.mark.full
def test_a_memory_limit_that_ends_it(run_forked: RunProgram) -> None:
    """What it holds is held to the end: our own report has to do with what is left."""
    done = run_forked(
        PROGRAM
        + """
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * resource.getpagesize() + (64 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    train(5)
    held = []
    while True:
        held.append(bytearray(1 << 20))
    """,
        check=False,
    )
    assert done.returncode == 1 and "MemoryError" in done.stderr
    assert done.report["run"]["status"] == "ended"
    assert done.report["summary"]["graph_calls"] == 8


@pytest.mark.full
def test_a_program_that_may_open_no_more_files(run_forked: RunProgram) -> None:
    """It ends by that; its limit, which the system lets us raise, is as it was afterwards."""
    limits = "200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]"
    last = "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    before = f"import atexit; atexit.register(lambda: {last})\n    f = torch"
    done = run_forked(
        PROGRAM.replace("f = torch", before, 1)
        + f"""
    resource.setrlimit(resource.RLIMIT_NOFILE, ({limits}))
    train(5)
    held = []
    while True:
        held.append(open("/dev/null"))
    """,
        check=False,
    )
    assert done.stdout == "200\n"
    assert done.returncode == 1 and "Too many open files" in done.stderr
    assert done.report["run"]["status"] == "ended"
    assert done.report["summary"]["graph_calls"] == 8
    assert done.report["notes"] == []


@pytest.mark.full
@pytest.mark.parametrize("ending", ["SIGTERM", "SIGINT"])
def test_interrupted(run_forked: RunProgram, ending: str) -> None:
    source = f"\n    signal.raise_signal(signal.{ending}); time.sleep(60)"
    done = run_forked(PROGRAM + source, check=False)
    assert done.returncode != 0
    assert done.report["run"]["status"] == "interrupted"


@pytest.mark.full
def test_what_is_being_compiled_is_in_the_file(run_forked: RunProgram) -> None:
    """A compiler that takes as long as the test wants."""
    done = run_forked(
        PROGRAM
        + """
    import torch._inductor.compile_fx as inner
    torch._inductor.config.force_disable_caches = True  # or nothing would be compiled
    known = []
    def slow(gm, inputs, **kwargs):
        wait(lambda found: found["compiling"])
        known.append(report()["compiling"][0])
        return plain(gm, inputs, **kwargs)
    plain, inner.compile_fx_inner = inner.compile_fx_inner, slow
    f(torch.ones(3))
    wait(lambda found: not found["compiling"])
    print(known[0]["why"], known[0]["function"], known[0]["since_at"] > 1.7e9)
    """
    )
    assert done.stdout == "size of x in dimension 0: 2 → 3 <lambda> True\n"


@pytest.mark.full
def test_a_program_that_does_nothing_writes_nothing(run_forked: RunProgram) -> None:
    done = run_forked(
        PROGRAM
        + """
    time.sleep(5)
    written = set()
    for _ in range(40):
        written.add(os.stat(glob.glob(FOLDER + "/*.json")[0]).st_ino)
        time.sleep(0.1)
    print(len(written))
    """
    )
    assert done.stdout == "1\n"


@pytest.mark.full
def test_a_folder_that_goes_and_comes_back(run_forked: RunProgram) -> None:
    done = run_forked(
        PROGRAM
        + """
    shutil.rmtree(FOLDER)
    for size in (3, 4):
        f(torch.ones(size)); time.sleep(2)
        assert not os.path.exists(FOLDER)
    os.mkdir(FOLDER)
    f(torch.ones(5))
    wait(lambda known: known and len(known["graphs"]) == 4)
    print(f(torch.ones(2)).sum().item())
    """
    )
    assert float(done.stdout) == pytest.approx(2 * (1 + 0.8414709848))
    assert done.stderr.count("lost: not kept up to date in ") == 1
    assert done.report["summary"]["graph_calls"] == 7


@pytest.mark.full
def test_a_full_disk(run_forked: RunProgram) -> None:
    """No file may be longer than a few bytes, which is what a full disk looks like."""
    done = run_forked(
        PROGRAM
        + """
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    before = report()
    train(50); f(torch.ones(3)); time.sleep(2)
    assert report() == before and not glob.glob(FOLDER + "/.*")
    resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    train(50)
    wait(has(104))
    """
    )
    assert done.stderr.count("lost: not kept up to date in ") == 1


@pytest.mark.full
def test_a_clock_that_is_set_back(run_forked: RunProgram) -> None:
    done = run_forked(
        PROGRAM
        + """
    seen_at, now = report()["run"]["seen_at"], getattr(time, "time")
    setattr(time, "time", lambda: now() - 86400)
    train(5)
    wait(has(8))
    print(seen_at - report()["run"]["seen_at"] > 80000)
    """
    )
    assert done.stdout == "True\n"


@pytest.mark.full
def test_a_forked_child_keeps_a_file_of_its_own(run_forked: RunProgram) -> None:
    # Threads that compile C++ are not in a child, whose plain Inductor waits for them for ever.
    done = run_forked(
        PROGRAM
        + """
    torch._inductor.config.compile_threads = 1
    pid = os.fork()
    if pid == 0:
        assert report() is None
        g = torch.compile(lambda x: x.cos(), backend="instrumented")
        g(x)
        wait(has(1))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    train(2)
    wait(has(5))
    os._exit(0)
    """
    )
    calls = sorted(report["summary"]["graph_calls"] for report in done.reports)
    assert calls == [1, 5]
    assert {report["run"]["status"] for report in done.reports} == {"running"}


@pytest.mark.full
def test_a_process_that_gets_its_rank_later(run_forked: RunProgram) -> None:
    done = run_forked(
        PROGRAM
        + """
    os.environ["RANK"] = "3"
    train(5)
    wait(lambda _: glob.glob(FOLDER + "/report.rank3.*"))
    os._exit(0)
    """
    )
    assert done.report["run"]["rank"] == 3


@pytest.mark.parametrize("who", ["nobody", pytest.param("python", marks=pytest.mark.full)])
def test_asked_by_a_signal(run_forked: RunProgram, who: str) -> None:
    handler = "signal.signal(signal.SIGUSR2, lambda *_: print('mine', flush=True))"
    done = run_forked(
        PROGRAM
        + f"""
    {handler if who == "python" else "pass"}
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGUSR2)
        time.sleep(1)
    os._exit(0)
    """
    )
    said = done.stderr.count("instrumented: 1 graph, 3 calls")
    if who == "python":
        assert (done.stdout, said) == ("mine\nmine\n", 0)
    else:
        assert said == 2 and "still running when it was last seen at 20" in done.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("before", "code"),
    [
        ("import faulthandler; faulthandler.register(signal.SIGUSR2, file=sys.stdout)", 0),
        ("", -signal.SIGUSR2),
    ],
    ids=["a handler in C", "off"],
)
def test_a_signal_that_is_not_ours(run_forked: RunProgram, before: str, code: int) -> None:
    source = PROGRAM.replace("f = torch", f"{before}\n    f = torch", 1)
    env = {} if before else {"INSTRUMENTED_SIGNAL": "off"}
    done = run_forked(
        source + "\n    os.kill(os.getpid(), signal.SIGUSR2); time.sleep(1); os._exit(0)",
        env=dict(env),
        check=False,
    )
    assert done.returncode == code
    assert "instrumented: 1 graph" not in done.stderr
    assert ("most recent call first" in done.stdout) == bool(before)


@pytest.mark.full
def test_a_signal_while_the_main_thread_is_in_native_code(run_forked: RunProgram) -> None:
    done = run_forked(
        PROGRAM
        + """
    def ask():
        os.kill(os.getpid(), signal.SIGUSR2); time.sleep(2); os._exit(0)
    threading.Thread(target=ask).start()
    lock = ctypes.CDLL(None).pthread_mutex_lock
    mutex = ctypes.create_string_buffer(64); lock(mutex); lock(mutex)
    """
    )
    assert done.stderr.count("instrumented: 1 graph, 3 calls") == 1


@pytest.mark.full
def test_a_question_interrupts_no_system_call(run_forked: RunProgram) -> None:
    """Native code that reads, and does not expect EINTR."""
    done = run_forked(
        PROGRAM
        + """
    reader, writer = os.pipe()
    def ask():
        time.sleep(0.5); os.kill(os.getpid(), signal.SIGUSR2); time.sleep(2); os.write(writer, b"x")
    threading.Thread(target=ask).start()
    print(ctypes.CDLL(None).read(reader, ctypes.create_string_buffer(1), 1), flush=True)
    os._exit(0)
    """
    )
    assert done.stdout == "1\n"
    assert done.stderr.count("instrumented: 1 graph, 3 calls") == 1


@pytest.mark.full
def test_reports_from_other_threads_while_it_compiles(run_forked: RunProgram) -> None:
    """Sizes follow each other on the main thread, and four threads ask all the time."""
    done = run_forked(
        PROGRAM
        + """
    import instrumented_backend, torch._dynamo
    torch._dynamo.config.recompile_limit = 1000
    wrong, ended = [], threading.Event()
    def ask():
        last = 0
        while not ended.is_set():
            try:
                found = instrumented_backend.report()
                calls = found.summary.graph_calls
                assert calls >= last and sum(g.calls for g in found.graphs) == calls
                last = calls
            except Exception as error:  # any: it is printed, and the test looks
                wrong.append(repr(error))
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads: thread.start()
    for size in range(3, 15): f(torch.ones(size))
    ended.set()
    for thread in threads: thread.join()
    print(wrong)
    """
    )
    assert done.stdout == "[]\n"
    assert done.report["notes"] == []
    assert done.report["summary"]["recompiles"] == 12


@pytest.mark.full
def test_run_shows_a_program_that_was_killed(run_program: RunProgram) -> None:
    source = PROGRAM.replace('backend="instrumented", ', "") + "\n    os._exit(5)"
    done = run_program(
        source,
        command=(*TOOL, "run", "{script}"),
        env=NO_GPU,  # type: ignore[arg-type]
        check=False,
    )
    assert done.returncode == 5
    assert " ".join(done.stderr.split()).count("1 graph, 3 calls") == 1, done.stderr
    assert "still running when it was last seen" in done.stderr


@pytest.mark.full
def test_killed_at_random_moments(run_program: RunProgram, tmp_path: Path) -> None:
    """The benchmark's own smallest run; it checks itself."""
    command = (sys.executable, str(BENCHMARKS / "survive.py"))
    arguments = ("--kills", "3", "--others", "1", "--long", "0")
    done = run_program("", command=command, arguments=arguments, env={"INSTRUMENTED_DIR": None})
    assert done.stdout.count(" 0 wrong") == 6


def test_snapshots_are_reports(run_forked: RunProgram, tmp_path: Path) -> None:
    """Read as any other."""
    done = run_forked(PROGRAM + "\n    os._exit(0)")
    (path,) = tmp_path.glob("reports*/report.*.json")
    assert read_report(path).summary.graphs == len(done.report["graphs"]) == 1


@pytest.mark.skipif(THREADS_MAY_PARSE, reason="this Python's parser is safe on two threads")
def test_nothing_is_parsed_beside_the_program(run_forked: RunProgram) -> None:
    """It would end what the program itself parses, such as a test's module, with a SystemError."""
    done = run_forked(
        """
        import ast, threading, time
        parse, threads = ast.parse, set()
        def watched(*arguments, **keywords):
            threads.add(threading.current_thread().name)
            return parse(*arguments, **keywords)
        ast.parse = watched
        import torch
        compiled = torch.compile(lambda x: x + 1, backend="instrumented")
        for _ in range(5):
            compiled(torch.ones(2))
            time.sleep(0.5)
        print(threads - {"MainThread"})
        """,
        env={"INSTRUMENTED_TABLES": "all"},
    )
    assert done.stdout == "set()\n"
    (kernel,) = done.report["kernels"]
    assert kernel["num_load"] == 1, "it is parsed at the end"
    assert done.report["compiled"][0]["call"].startswith("torch.compile(lambda x")
