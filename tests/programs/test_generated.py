"""The kernels of a program while it runs: all of them, once, cold and warm."""

import itertools
import logging
import os
import shutil
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpt2_kernels import check_one_record_for_each_kernel
from kernel_data import modules
from programs import RunProgram
from waiting import wait_until

from instrumented_backend.kernels.parse import parse_module
from instrumented_backend.observe.code import generated
from instrumented_backend.observe.code.generated import GeneratedCode, KernelReader, log
from instrumented_backend.observe.failures import Failures
from instrumented_backend.records import KernelRecord

GRAPH = modules()["plain/conv_bn.graph1.py"]


class Compiled(SimpleNamespace):
    """What is used of Inductor's ``CompiledFxGraph``."""


def compiled(text: str = GRAPH) -> Any:
    return Compiled(source_code=text)


def expected(text: str = GRAPH) -> list[KernelRecord]:
    kernels = parse_module(text, "/cache/ab/cab.py")
    for kernel in kernels:
        kernel.direction = "backward"
    return kernels


def reader_of(
    failures: Failures | None = None,
    *,
    meanwhile: bool = False,
    compiling_s: Callable[[], float] = lambda: 0.0,
    **keywords: Any,
) -> KernelReader:
    return KernelReader(
        Failures() if failures is None else failures, meanwhile, compiling_s, **keywords
    )


def test_records_survive_packing() -> None:
    graph = compiled()
    code = GeneratedCode(graph, "/cache/ab/cab.py", "backward")
    names = [kernel.kernel_name for kernel in expected() if kernel.language != "extern"]
    assert code.record.kernels == names
    assert [(k.kernel_name, k.language) for k in code.kernels()] == [(n, "triton") for n in names]
    assert all("by name only" in kernel.notes[0] for kernel in code.kernels())
    code.parse()
    assert code.kernels() == expected()


def test_what_is_kept_of_a_graph_is_small() -> None:
    graph = compiled()
    code = GeneratedCode(graph, "/cache/ab/cab.py", "forward")
    code.parse()
    assert code._packed is not None
    # 15 records of a module of 77 KB; the limit is 30 KB a graph.
    assert len(code._packed) < 10_000


def test_the_source_of_a_graph_that_is_gone_is_in_the_cache(tmp_path: Path) -> None:
    path = tmp_path / "cab.py"
    path.write_text(GRAPH)
    code = GeneratedCode(compiled(), str(path), "forward")  # kept by nobody
    code.parse()
    assert len(code.kernels()) == len(expected())


def test_a_module_that_is_gone_leaves_names_and_one_warning(tmp_path: Path) -> None:
    failures = Failures()
    reader = reader_of(failures)
    codes = [GeneratedCode(compiled(), str(tmp_path / f"{i}.py"), "forward") for i in range(2)]
    assert reader.finish(codes) == 0
    assert all(kernel.kernel_category == "unknown" for kernel in codes[0].kernels())
    assert [note.code for note in failures.notes] == ["lost", "lost"]


def test_in_the_background_and_at_the_end() -> None:
    reader = reader_of(meanwhile=True, threads_may_parse=True)
    graphs = [compiled(GRAPH.replace("_fused_", f"_fused_{i}_")) for i in range(3)]
    codes = [GeneratedCode(graph, "/cache/ab/cab.py", "backward") for graph in graphs]
    for code, graph in zip(codes, graphs, strict=True):
        reader.read(code, graph)
    wait_until(lambda: codes[0].parsed)
    assert reader.finish(codes) == 0  # the rest without naps
    assert [code.kernels() for code in codes] == [expected(graph.source_code) for graph in graphs]
    wait_until(lambda: all(t.name != "instrumented-kernels" for t in threading.enumerate()))


def test_where_no_thread_may_parse_the_one_that_compiles_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In 3 % of what compiling took; here parsing takes a second, and 0.8 s are allowed."""
    seconds, parse = [0.0], generated.parse_module

    def parse_for_a_second(*args: Any, **keywords: Any) -> Any:
        records = parse(*args, **keywords)
        seconds[0] += 1
        return records

    monkeypatch.setattr(generated, "parse_module", parse_for_a_second)
    compiling_s = [0.0]
    reader = reader_of(
        meanwhile=True,
        threads_may_parse=False,
        compiling_s=lambda: compiling_s[0],
        clock=lambda: seconds[0],
    )
    graphs = [compiled() for _ in range(11)]
    codes = [GeneratedCode(graph, "/cache/ab/cab.py", "backward") for graph in graphs]
    parsed = []
    for code, graph in zip(codes, graphs, strict=True):
        compiling_s[0] += 0.8 / generated.SHARE_OF_COMPILING
        reader.read(code, graph)
        parsed.append(sum(code.parsed for code in codes))
        assert all(code.parsed for code in codes[: parsed[-1]])  # the oldest first
    # A module is begun while 0.8 s a compilation are not used up.
    assert parsed == [1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9]
    assert not any(thread.name == "instrumented-kernels" for thread in threading.enumerate())
    assert reader.finish(codes) == 0
    assert [code.kernels() for code in codes] == [expected()] * len(codes)


def test_no_module_is_begun_that_would_take_longer_than_it_may() -> None:
    reader = reader_of(meanwhile=True, threads_may_parse=False, compiling_s=lambda: 0.001)
    graph = compiled()
    code = GeneratedCode(graph, "/cache/ab/cab.py", "backward")
    reader.read(code, graph)
    assert not code.parsed
    assert reader.finish([code]) == 0 and code.kernels() == expected()


def test_on_another_thread_than_the_main_one_nothing_is_parsed() -> None:
    reader = reader_of(meanwhile=True, threads_may_parse=False, compiling_s=lambda: 1e6)
    graph = compiled()
    code = GeneratedCode(graph, "/cache/ab/cab.py", "forward")
    thread = threading.Thread(target=reader.read, args=(code, graph))
    thread.start()
    thread.join()
    assert not code.parsed


def test_no_thread_where_nobody_wants_the_records() -> None:
    reader = reader_of()
    graph = compiled()
    code = GeneratedCode(graph, "/cache/ab/cab.py", "forward")
    reader.read(code, graph)
    assert not any(thread.name == "instrumented-kernels" for thread in threading.enumerate())
    assert not code.parsed


def test_the_end_waits_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that goes on by a second with each module."""
    seconds, parse = [0.0], generated.parse_module

    def parse_for_a_second(*args: Any, **keywords: Any) -> Any:
        records = parse(*args, **keywords)
        seconds[0] += 1
        return records

    monkeypatch.setattr(generated, "parse_module", parse_for_a_second)
    reader = reader_of(clock=lambda: seconds[0])
    graphs = [compiled() for _ in range(10)]
    codes = [GeneratedCode(graph, "/cache/ab/cab.py", "forward") for graph in graphs]
    # Begun at 0, 1, 2, 3 and 4 s.
    assert reader.finish(codes, limit_s=5) == 5
    assert [code.parsed for code in codes] == [True] * 5 + [False] * 5
    assert reader.finish(codes) == 0


def test_the_end_waits_not_even_for_one_long_module() -> None:
    """On a clock that goes on by a second whenever it is looked at."""
    failures, seconds = Failures(), itertools.count()
    reader = reader_of(failures, clock=lambda: float(next(seconds)))
    graph = compiled()
    code = GeneratedCode(graph, "/cache/ab/cab.py", "backward")
    assert reader.finish([code], limit_s=5) == 1
    assert not code.parsed and failures.notes == []
    assert reader.finish([code]) == 0
    assert code.kernels() == expected()


def test_the_end_waits_not_for_a_thread_that_parses() -> None:
    reader = reader_of(clock=lambda: 0.0)
    graph = compiled()
    code = GeneratedCode(graph, "/cache/ab/cab.py", "forward")
    with code._lock:
        assert reader.finish([code], limit_s=0.01) == 1
    assert reader.finish([code], limit_s=0.01) == 0


def test_the_log_has_each_kernel_once(caplog: pytest.LogCaptureFixture) -> None:
    reader = reader_of()
    graph = compiled()
    with caplog.at_level(logging.INFO, logger=log.name):
        for _ in range(2):
            reader.read(GeneratedCode(graph, "/cache/ab/cab.py", "backward"), graph)
    records = [record.__dict__["kernel"] for record in caplog.records]
    assert records == [kernel for kernel in expected() if kernel.language != "extern"]
    assert caplog.messages[0].startswith("triton_poi_fused_convolution_0: pointwise, 2 loads")
    assert {record.name for record in caplog.records} == {"instrumented_backend.kernels"}


def test_the_log_costs_nothing_where_it_is_off(caplog: pytest.LogCaptureFixture) -> None:
    reader = reader_of()
    graph = compiled()
    code = GeneratedCode(graph, "/cache/ab/cab.py", "forward")
    with caplog.at_level(logging.WARNING, logger=log.name):
        reader.read(code, graph)
    assert not code.parsed and not caplog.records


def test_a_forked_child_has_a_thread_of_its_own() -> None:
    reader = reader_of(meanwhile=True, threads_may_parse=True)
    graph = compiled()
    reader.read(GeneratedCode(graph, "/cache/ab/cab.py", "forward"), graph)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            reader.after_fork()
            code = GeneratedCode(graph, "/cache/ab/cab.py", "forward")
            reader.read(code, graph)
            wait_until(lambda: code.parsed)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# --- Whole programs -----------------------------------------------------------------------------


@pytest.mark.full
def test_gpt2_has_one_record_for_each_kernel(run_program: RunProgram, cold_cache: Path) -> None:
    check_one_record_for_each_kernel(run_program, cold_cache, "cpu", "cpp")


@pytest.mark.full
def test_logged_once_when_loaded_from_a_cache(run_forked: RunProgram, cold_cache: Path) -> None:
    program = """
        import torch
        f = torch.compile(lambda x: (x.sin() + 1).sum(), backend="instrumented")
        for _ in range(3):
            f(torch.ones(50))
        print("first")
        torch._dynamo.reset()
        f(torch.ones(50))
    """
    env = {"TORCHINDUCTOR_CACHE_DIR": str(cold_cache), "INSTRUMENTED_LOG": "info"}
    for _ in ("cold", "warm"):
        done = run_forked(program, env=env)
        lines = [line for line in done.stderr.splitlines() if "INFO: cpp_fused" in line]
        assert len(lines) == 1
        assert lines[0].startswith(
            "instrumented: INFO: cpp_fused_add_sin_sum_0: reduction, 1 loads"
        )
        assert "aten.sin" in lines[0]


@pytest.mark.full
def test_the_lines_are_those_of_the_program_that_runs(
    run_forked: RunProgram, cold_cache: Path
) -> None:
    """Not of the one that filled the caches: before an edit, or in another file."""
    program = """
        import torch

        def f(x):
            {y} = x.sin()
            {y} = {y} + 1  # add
            {y} = {y}.cos()  # cos
            {y} = {y} + 2  # add
            return {y}.exp()

        x = torch.ones(50, requires_grad=True)
        torch.compile(f, backend="instrumented")(x).sum().backward()
    """
    env = {"TORCHINDUCTOR_CACHE_DIR": str(cold_cache)}
    for above, name in (("", "y"), ("# edited\n" * 5, "y"), ("\n", "renamed")):
        source = above + textwrap.dedent(program).format(y=name)
        done = run_forked(source, env=env)
        assert {graph["cache"] for graph in done.report["graphs"]} == {"hit" if above else "miss"}
        forward, backward = done.report["kernels"]
        script = forward["source_lines"][0].rpartition(":")[0]
        assert Path(script).read_text() == source
        lines = [f"{script}:{n}" for n, text in enumerate(source.splitlines(), 1) if name in text]
        assert sorted(forward["source_lines"]) == sorted(lines)
        assert set(backward["source_lines"]) <= set(lines)
        assert sorted(forward["op_lines"]["aten.add"]) == sorted([lines[1], lines[3]])
        assert forward["op_lines"]["aten.cos"] == [lines[2]]


@pytest.mark.full
def test_the_programs_logging_configuration_is_respected(run_forked: RunProgram) -> None:
    done = run_forked("""
        import logging, sys
        logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(name)s|%(message)s")
        import torch, instrumented_backend
        logging.getLogger("instrumented_backend").setLevel(logging.INFO)
        torch.compile(lambda x: x.sin() * 3, backend="instrumented")(torch.ones(7))
    """)
    ours = [x for x in done.stdout.splitlines() if x.startswith("instrumented_backend.kernels|")]
    assert len(ours) == 1 and "cpp_fused_mul_sin_0: pointwise" in ours[0]
    assert "INFO" not in done.stderr


def test_nothing_is_parsed_for_a_summary(run_forked: RunProgram) -> None:
    """With default settings the parser is never entered, and the number of kernels is right."""
    done = run_forked(
        """
        import torch, instrumented_backend
        from instrumented_backend.observe.code import generated
        def fail(*args, **kwargs):
            raise RuntimeError("parsed")
        generated.parse_module = fail
        torch.compile(lambda x: x.sin().sum(), backend="instrumented")(torch.ones(7))
        """,
        env={"INSTRUMENTED_DIR": None},
    )
    assert " 1 kernel " in done.stderr and "parsed" not in done.stderr


@pytest.mark.full
def test_the_code_and_its_cache_stay_inductors(
    run_forked: RunProgram, isa_checks: Path, tmp_path: Path
) -> None:
    """What we keep is in a folder of its own; Inductor's files are the same without us."""
    program = """
        import torch
        x = torch.ones(60, requires_grad=True)
        torch.compile(lambda x: x.sin().sum(), backend="{}")(x).backward()
    """
    files = []
    for backend in ("inductor", "instrumented"):
        cache = shutil.copytree(isa_checks, tmp_path / backend)
        run_forked(program.format(backend), env={"TORCHINDUCTOR_CACHE_DIR": str(cache)})
        modules = {p.name: p.read_text() for p in cache.glob("??/*.py")}
        files.append((modules, {path.name for path in cache.iterdir()} - {"instrumented"}))
    assert files[0] == files[1]
