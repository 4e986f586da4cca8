"""What the backend costs, against plain Inductor, as pairs measured in turn on one machine.

    python benchmarks/overhead.py                     # what users meet daily
    python benchmarks/overhead.py --only call --device cuda
    python benchmarks/overhead.py --only memory       # named only: these take longer

Each row is the median over pairs with its quartiles, and the limit that it has to stay inside.
Both backends take turns inside one process, since one process differs from the next by more than
there is to see; for memory, where that cannot be, processes take turns. Ctrl-C prints what was
measured until then.
"""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from proof.calls import tiny_call
from proof.compilations import compilations
from proof.endings import endings
from proof.ends import start_and_end
from proof.figures import COST_HEADERS, Cost, exit_code, measured, table, write_json
from proof.live import live
from proof.memory import memory
from proof.parts import parts
from proof.snapshots import snapshots
from proof.steps import compared, steps
from proof.window import after_a_window

DEFAULT = ("call", "parts", "cold", "warm", "steps", "always", "ends")
MEANINGS = {
    "call": "a compiled call of 8 elements",
    "parts": "native calls alone, the note of a graph, parsing, the limit of the exit",
    "cold": "compiling with empty caches",
    "warm": "compiling with full caches",
    "steps": "training steps with the defaults",
    "always": "the same with INSTRUMENTED_OPS=always",
    "ends": "import and exit",
    "endings": "exit and SIGTERM with nothing built before, and with a compiler that hangs",
    "compared": "training steps with torch.profiler's regions, torch.profiler on, and"
    " torch._dynamo.profiler, in our place",
    "live": "how soon `top` shows something, and what callbacks cost",
    "snapshots": "a snapshot of the largest report; ten minutes of training steps with them",
    "memory": "growth of resident memory",
    "window": "launch-bound steps after a window of device time, over those before it; on CUDA",
}


@click.command(
    epilog="\b\nWhat --only names (by default the first seven):\n"
    + "\n".join(f"  {name:10}{meaning}" for name, meaning in MEANINGS.items())
)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--only", type=click.Choice(list(MEANINGS)), multiple=True)
@click.option(
    "--pairs",
    default=8,
    show_default=True,
    type=click.IntRange(1),
    help="Of a row; warm takes 4 times as many, ends twice, endings half, memory a quarter.",
)
@click.option("--rounds", default=150, show_default=True, help="Rounds of 300 calls each.")
@click.option(
    "--scale",
    default=1.0,
    show_default=True,
    help="Of the counts in --only memory, and of the ten minutes in snapshots.",
)
@click.option("--json", "json_path", type=Path, help="Write the rows there as well.")
def main(
    device: str,
    only: tuple[str, ...],
    pairs: int,
    rounds: int,
    scale: float,
    json_path: Path | None,
) -> None:
    """Measure what the backend costs; exit code 1 if a limit is passed."""
    if "window" in only and device != "cuda":
        raise click.BadParameter("window is for cuda", param_hint="--only")
    os.environ["INSTRUMENTED_TABLES"] = "none"
    import torch

    measures: dict[str, Callable[[], Iterable[Cost]]] = {
        "call": lambda: tiny_call(device, rounds),
        "parts": lambda: parts(pairs),
        "cold": lambda: compilations(device, pairs, warm=False),
        "warm": lambda: compilations(device, 4 * pairs, warm=True),
        "steps": lambda: steps("auto", device, pairs),
        "always": lambda: steps("always", device, pairs),
        "ends": lambda: start_and_end(2 * pairs),
        "endings": lambda: endings(max(pairs // 2, 1)),
        "compared": lambda: compared(device, pairs),
        "live": lambda: live(pairs),
        "snapshots": lambda: snapshots(pairs, scale),
        "memory": lambda: memory(max(pairs // 4, 1), scale),
        "window": lambda: after_a_window(pairs),
    }
    chosen = only or DEFAULT
    rows, interrupted = measured(row for name in chosen for row in measures[name]())
    if interrupted:
        click.echo("interrupted: what was measured until then", err=True)
    click.echo(table(rows, COST_HEADERS))
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    click.echo(f"torch {torch.__version__}, Python {sys.version.split()[0]}, {name}")
    if json_path is not None:
        write_json(json_path, rows)
    sys.exit(exit_code(rows, interrupted))


if __name__ == "__main__":
    main()
