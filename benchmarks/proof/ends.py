"""What importing the package costs, and the report at the exit."""

import os
import subprocess
import sys
import tempfile
import textwrap

import click

from proof.figures import Cost, cost_of

IMPORT = """
    import time, torch
    start = time.perf_counter()
    import instrumented_backend
    print((time.perf_counter() - start) * 1e3)
"""

# What torch does for us at the end of its own import, where nobody asks for adoption.
AUTOLOAD = """
    import sys, time, torch
    from importlib.metadata import EntryPoint
    sys.modules.pop("instrumented_backend_autoload", None)
    point = EntryPoint("instrumented", "instrumented_backend_autoload:autoload", "torch.backends")
    start = time.perf_counter()
    point.load()()
    print((time.perf_counter() - start) * 1e3)
"""

EXIT = """
    import sys, time, torch, torch._dynamo
    from instrumented_backend import backend
    for i in range(int(sys.argv[1])):
        torch._dynamo.reset()
        torch.compile(lambda x: x + 1, backend="instrumented")(torch.ones(2))
    assert len(backend.report().graphs) == int(sys.argv[1])
    start = time.perf_counter()
    dict(backend._session._observers)["the report"]._hooks.run()
    print((time.perf_counter() - start) * 1e3)
"""


# One graph with ten kernels and ten calls of a library, compiled six times, and 994 copies of its
# module, in which each kernel has another name. Compiling a thousand in earnest would take an
# hour. A copy counts as compiled in the median time of those compilations that had warm caches.
EXIT_MANY = """
    import statistics, sys, time, torch
    from pathlib import Path
    from instrumented_backend import backend
    from instrumented_backend.torch_compat import inductor

    class Code:
        def __init__(self, key, source):
            self.cache_key, self.source_code = key, source

    def f(x):
        for i in range(1, 11):
            x = x @ x + i
        return x

    session = backend._session
    totals = session.compile_log.totals
    times_s = []
    for _ in range(6):
        torch._dynamo.reset()
        before_s = totals.total_s
        torch.compile(f, backend="instrumented")(torch.ones(8, 8))
        times_s.append(totals.total_s - before_s)
    warm_s = statistics.median(times_s[1:])
    source = Path(session.observed_graphs()[0].code[0].path).read_text()
    gm = torch.fx.symbolic_trace(lambda x: x)
    kept = []
    for i in range(6, int(sys.argv[1])):
        kept.append(Code(f"c{i:051d}", source.replace("cpp_fused_", f"cpp_fused_{i}_")))
        path = Path(inductor.code_path(kept[-1]))
        path.parent.mkdir(exist_ok=True)
        path.write_text(kept[-1].source_code)
        graph = session.open_graph(gm, (), None, {})
        totals.total_s += warm_s
        session._read_code(graph, kept[-1], "forward")
    while sys.argv[2] == "later" and session._reader._pacer is not None:
        time.sleep(0.1)
    start = time.perf_counter()
    dict(session._observers)["the report"]._hooks.run()
    milliseconds = (time.perf_counter() - start) * 1e3
    kernels = [row for row in session.report().kernels if row.language == "cpp"]
    assert len(kernels) == 10 * int(sys.argv[1]), len(kernels)
    print(milliseconds)
"""


def start_and_end(repeats: int) -> list[Cost]:
    """Milliseconds to import the package after torch, and to report many graphs at the exit."""
    with tempfile.TemporaryDirectory() as folder:
        imports = [float(python(IMPORT, cache=folder)) for _ in range(repeats)]
        autoloads = [
            float(python(AUTOLOAD, cache=folder, INSTRUMENTED_ADOPT="0")) for _ in range(repeats)
        ]
        reports = f"{folder}/reports"
        exits = [
            float(
                python(
                    EXIT, "100", cache=folder, INSTRUMENTED_TABLES="all", INSTRUMENTED_DIR=reports
                )
            )
            for _ in range(max(3, repeats // 3))
        ]
        many = {
            when: [
                float(
                    python(
                        EXIT_MANY,
                        *("1000", when),
                        cache=folder,
                        INSTRUMENTED_TABLES="all",
                        INSTRUMENTED_DIR=reports,
                    )
                )
                for _ in range(3)
            ]
            for when in ("at once", "later")
        }
    return [
        cost_of("import after torch", imports, "ms", 30),
        cost_of("import of torch, INSTRUMENTED_ADOPT unset", autoloads, "ms over", 1),
        cost_of("exit, 100 graphs, all tables and files", exits, "ms", 100),
        *(
            cost_of(f"exit, 1,000 graphs, 10,000 kernels, {when}", values, "ms", 1000)
            for when, values in many.items()
        ),
    ]


def python(source: str, *arguments: str, cache: str, **variables: str) -> str:
    """Run a program in a process of its own, without torch in it yet; what it prints last."""
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": cache,
        "INSTRUMENTED_TABLES": "summary",
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), *arguments],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise click.ClickException(f"a measured program failed:\n{done.stderr}")
    return done.stdout.splitlines()[-1]
