"""Child programs, shared caches, and a clean slate for tests that compile in this process."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import surroundings
from filelock import FileLock
from paths import TESTS
from programs import NO_GPU, Finished, Forker, RunProgram, prepare, read_reports

from instrumented_backend.observe.native import build as native
from instrumented_backend.observe.native import structs

surroundings.forget_variables()
surroundings.let_children_be_interrupted()
# Before the package is imported: nothing of the test run itself is to be printed.
os.environ["INSTRUMENTED_TABLES"] = "none"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session", autouse=True)
def inductor_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache folder for the whole run, workers included: Inductor compiles each thing once."""
    base = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        base = base.parent
    folder = base / "inductor_cache"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    # The native parts are built once for the run, and not taken from an earlier one.
    os.environ["XDG_CACHE_HOME"] = str(base / "cache")
    native.load()
    native.load_graph_call()
    return folder


@pytest.fixture(scope="session")
def isa_checks(inductor_cache: Path) -> Path:
    """A cache folder with nothing but Inductor's trials of the CPU's vector instructions.

    Six programs, ten seconds: more than a small graph takes, and the same for every cache folder.
    """
    folder = inductor_cache.with_name("isa_checks")
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            trial = "from torch._inductor.cpu_vec_isa import valid_vec_isa_list as f; f()"
            environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder)}
            subprocess.run([sys.executable, "-c", trial], env=environment, check=True)
            # The shared folder has use for them, too. What is there may be loaded: it stays.
            shutil.copytree(
                folder, inductor_cache, copy_function=_link_unless_there, dirs_exist_ok=True
            )
    return folder


def _link_unless_there(source: str, target: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.link(source, target)


@pytest.fixture
def cold_cache(isa_checks: Path, tmp_path: Path) -> Path:
    """An Inductor cache folder of the test's own, without a graph or a kernel in it."""
    return Path(shutil.copytree(isa_checks, tmp_path / "cache"))


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is in the folder ``gpu`` needs one."""
    for_gpu = [item for item in items if item.path.is_relative_to(TESTS / "gpu")]
    for item in for_gpu:
        item.add_marker("gpu")
    if for_gpu:
        import torch

        if not torch.cuda.is_available():
            for item in for_gpu:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes by the parameter's name: a gzip file has its time in it, and workers must agree."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture
def run_program(tmp_path: Path) -> RunProgram:
    """Run a program's source in a child process with its own report folder.

    ``env`` adds variables (None takes one away), ``arguments`` follow the script's name, and
    ``command`` replaces ``python SCRIPT``: "{script}" in it is the script's path.
    """

    def run(
        source: str,
        *,
        env: dict[str, str | None] | None = None,
        arguments: tuple[str, ...] = (),
        command: tuple[str, ...] = (sys.executable, "{script}"),
        check: bool = True,
        timeout: float = 300,
        interact: Callable[[subprocess.Popen[str]], None] | None = None,
        cwd: Path | None = None,
    ) -> Finished:
        script, reports, variables = prepare(tmp_path, source, env or {})
        process = subprocess.Popen(
            [part.format(script=script) for part in command] + list(arguments),
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd or tmp_path,
        )
        try:
            if interact is not None:
                interact(process)
            stdout, stderr = process.communicate(timeout=timeout)
        finally:
            process.kill()
            process.wait()
        if check:
            assert process.returncode == 0, stderr
        return Finished(process.returncode, stdout, stderr, read_reports(reports))

    return run


@pytest.fixture(scope="session")
def forker(isa_checks: Path) -> Iterator[Forker]:
    forker = Forker()
    yield forker
    forker.close()


@pytest.fixture
def run_forked(forker: Forker, tmp_path: Path) -> RunProgram:
    """As `run_program`, in a process that was forked with torch imported: for many programs.

    Not for what happens before the program's first line, such as Python's own switches, and not
    for programs that need a GPU.
    """

    def run(
        source: str,
        *,
        env: dict[str, str | None] | None = None,
        check: bool = True,
        timeout: float = 300,
        cwd: Path | None = None,
    ) -> Finished:
        script, reports, variables = prepare(tmp_path, source, env or {})
        stdout, stderr = script.with_suffix(".stdout"), script.with_suffix(".stderr")
        request = {
            "script": str(script),
            "cwd": str(cwd or tmp_path),
            "env": {**variables, **NO_GPU},
            "stdout": str(stdout),
            "stderr": str(stderr),
        }
        code = forker.run(request, timeout)
        done = Finished(code, stdout.read_text(), stderr.read_text(), read_reports(reports))
        if check:
            assert done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture
def fresh(isa_checks: Path) -> Iterator[None]:
    """Dynamo and the session as at the start of a process, for tests that compile in this one."""
    import torch._dynamo

    import instrumented_backend

    torch._dynamo.reset()
    instrumented_backend.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def op_meter() -> Iterator[Any]:
    """The op meter's native part, with nothing in it and no window open."""
    from instrumented_backend import backend

    lib = native.load()
    # Loading the backend begins a thread that counts calls, once the same library is there; and a
    # test that compiles in this process leaves one that opens windows of its own.
    for thread in threading.enumerate():
        if thread.name == "instrumented_backend op meter":
            thread.join()
    others = backend._session.ops
    others.pause(True)

    def empty() -> None:
        lib.op_meter_uncount_calls()
        lib.op_meter_close()
        lib.op_meter_sample(structs.Sampler(), False)
        lib.op_meter_clear()

    lib.op_meter_begin(0, 0)  # long ago; but clearing makes it begin now
    empty()
    yield lib
    empty()
    others.pause(False)
