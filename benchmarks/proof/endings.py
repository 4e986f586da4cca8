"""The end of a program whose native parts are not built yet: on a new machine, and never."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import click

from proof.figures import Cost, cost_of

# Inductor takes the compiler as it was when its configuration was imported: the other is ours only.
PROGRAM = """
    import os, signal, sys, time, torch, torch._inductor.config
    backend, compiler, ending = sys.argv[1:]
    if compiler:
        os.environ["CXX"] = compiler
    f = torch.compile(lambda x: (x @ x).sin() + 1, backend=backend)
    for _ in range(3):
        f(torch.ones(4, 4))
    print(time.monotonic(), flush=True)
    if ending == "SIGTERM":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(600)
"""


def endings(pairs: int) -> list[Cost]:
    """Milliseconds from the program's last line to its end, more than with Inductor."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hangs = folder / "hangs"
        hangs.write_text("#!/bin/sh\nsleep 1000\n")
        hangs.chmod(0o755)
        _end_ms(folder, "inductor")  # its caches are full from here on
        first, hanging, killed = [], [], []
        for _ in range(pairs):
            first.append(_end_ms(folder, "instrumented") - _end_ms(folder, "inductor"))
            theirs = _end_ms(folder, "inductor", str(hangs))
            hanging.append(_end_ms(folder, "instrumented", str(hangs)) - theirs)
            killed.append(_end_ms(folder, "instrumented", str(hangs), "SIGTERM"))
    return [
        cost_of("exit, nothing built before, over Inductor's", first, "ms", 1000),
        cost_of("exit, a compiler that hangs, over Inductor's", hanging, "ms", 1500),
        cost_of("SIGTERM, a compiler that hangs", killed, "ms", 1000),
    ]


def _end_ms(folder: Path, backend: str, compiler: str = "", ending: str = "exit") -> float:
    """With an empty HOME."""
    with tempfile.TemporaryDirectory(dir=folder) as home:
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "HOME": home,
            "XDG_CACHE_HOME": "",
            "INSTRUMENTED_TABLES": "summary",
        }
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PROGRAM), backend, compiler, ending],
            env=environment,
            capture_output=True,
            text=True,
        )
        end_s = time.monotonic()  # the same clock in all processes
    expected = -signal.SIGTERM if ending == "SIGTERM" else 0
    if done.returncode != expected:
        raise click.ClickException(f"a measured program failed:\n{done.stderr}")
    return (end_s - float(done.stdout.splitlines()[-1])) * 1e3
