"""What the report says against oracles that this project did not write.

    python benchmarks/accuracy.py                 # six architectures, some minutes
    python benchmarks/accuracy.py --model gpt2 --device cuda

So far: captured ops. The oracle is the same program with Dynamo's own graphs run op by op, under
torch.profiler (`tests/oracle.py`). Each model is compiled twice, with an empty and a full cache.
Exit code 1 if a figure is off by more than its limit.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

FORWARD_LIMIT_PCT, BACKWARD_LIMIT_PCT = 1.0, 2.0
STEPS = 2


@dataclass
class Row:
    """One figure of one model; ``ours`` and ``oracle`` are ops of one step."""

    model: str
    figure: str
    cache: str
    ours: float
    oracle: float
    limit_pct: float

    @property
    def error_pct(self) -> float:
        return 100 * abs(self.ours - self.oracle) / self.oracle if self.oracle else 0.0

    @property
    def ok(self) -> bool:
        return self.error_pct <= self.limit_pct


def measure(name: str, device: str) -> list[Row]:
    """Captured ops of training steps, forward and backward, cold and warm."""
    import architectures
    import oracle
    import torch
    from torch._inductor.utils import fresh_cache

    import instrumented_backend

    model, inputs = architectures.ALL_ARCHITECTURES[name]()
    model = model.to(device)
    inputs = {key: value.to(device) for key, value in inputs.items()}

    def step(compiled: torch.nn.Module) -> None:
        compiled(**inputs).loss.backward()

    torch._dynamo.reset()
    by_op = torch.compile(model, backend=oracle.run_in_region)
    step(by_op)
    truth = oracle.profile(lambda: step(by_op))
    rows = []
    with fresh_cache():
        for cache in ("cold", "warm"):
            torch._dynamo.reset()
            instrumented_backend.reset()
            compiled = torch.compile(model, backend="instrumented")
            for _ in range(STEPS):
                step(compiled)
            captured = instrumented_backend.report().ops.captured
            for figure, theirs, limit in (
                ("forward_ops", truth.inside.total(), FORWARD_LIMIT_PCT),
                ("backward_ops", truth.backward, BACKWARD_LIMIT_PCT),
            ):
                rows.append(Row(name, figure, cache, captured[figure] / STEPS, theirs, limit))
    return rows


@click.command()
@click.option("--model", multiple=True, help="Only this one; may be given several times.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--json", "json_path", type=Path, help="Write the rows there as well.")
def main(model: tuple[str, ...], device: str, json_path: Path | None) -> None:
    """Compare the report's figures with their oracles; exit code 1 if one is off."""
    os.environ["INSTRUMENTED_TABLES"] = "none"
    import architectures
    import torch

    unknown = set(model) - set(architectures.ALL_ARCHITECTURES)
    if unknown:
        choices = ", ".join(architectures.ALL_ARCHITECTURES)
        raise click.BadParameter(f"{unknown.pop()}; choose from {choices}", param_hint="--model")
    rows: list[Row] = []
    names = list(model or architectures.ALL_ARCHITECTURES)
    with click.progressbar(names, file=sys.stderr) as bar:
        for name in bar:
            rows += measure(name, device)
    click.echo(
        tabulate(
            [
                [
                    row.model,
                    row.figure,
                    row.cache,
                    row.ours,
                    row.oracle,
                    f"{row.error_pct:.2f} %",
                    f"{row.limit_pct:g} %",
                    "ok" if row.ok else "OFF",
                ]
                for row in rows
            ],
            headers=["model", "figure", "cache", "ours", "oracle", "error", "limit", ""],
        )
    )
    click.echo(f"torch {torch.__version__}, {device}, ops of one training step")
    if json_path is not None:
        json_path.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    sys.exit(not all(row.ok for row in rows))


if __name__ == "__main__":
    main()
