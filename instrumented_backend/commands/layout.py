"""The option ``--format``, and what is printed by it."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from instrumented_backend.views.output import View


format_option = click.option(
    "--format",
    "layout",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="json and csv have every column.",
)


def echo(view: "View", layout: str) -> None:
    from instrumented_backend.views.output import render_view

    click.echo(render_view(view, layout), nl=layout != "csv")
