"""``instrumented-backend demo``: a small training with the backend."""

import click

from instrumented_backend import settings


@click.command("demo")
@click.option(
    "--steps", default=5, show_default=True, type=click.IntRange(1), help="Training steps."
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    help="Where to train. [default: cuda if there is one]",
)
def command(steps: int, device: str | None) -> None:
    """Train a small GPT on made-up text with the backend, then show the report.

    The model checks its loss inside forward, as one does; the report shows what that costs.
    """
    settings.load()
    import torch

    from instrumented_backend.demo import train

    if device == "cuda" and not torch.cuda.is_available():
        raise click.BadParameter("no CUDA device here, or torch has no CUDA", param_hint="--device")
    train(steps, device)
