"""The option ``--format``, and what is printed by it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from instrumented_backend.views.output import View

Function = Callable[..., Any]

_LAYOUT = click.option(
    "--format",
    "layout",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="json and csv have every column.",
)
_QUOTING = click.option(
    "--quote-formulas/--no-quote-formulas",
    default=True,
    show_default=True,
    help="In CSV, put ' before text that a spreadsheet would run: that begins with =, +, - or @.",
)


def format_option(function: Function) -> Function:
    """Give a command the options for `echo`: ``layout`` and ``quote_formulas``."""
    return _LAYOUT(_QUOTING(function))


def echo(view: "View", layout: str, quote_formulas: bool) -> None:
    from instrumented_backend.records.escapes import to_bytes
    from instrumented_backend.views.output import render_view

    text = render_view(view, layout, quote_formulas=quote_formulas)
    # As bytes where it is data: click takes colours out of text that goes into a pipe.
    click.echo(to_bytes(text) if layout == "csv" else text, nl=layout != "csv")
