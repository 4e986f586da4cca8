"""The help of each command, as a terminal of 80 columns has it."""

import click
import pytest
from click.testing import CliRunner

from instrumented_backend.commands import cli

NAMES = sorted(cli.list_commands(click.Context(cli)))


@pytest.mark.parametrize("name", [None, *NAMES])
def test_no_line_is_wider_than_the_terminal(name: str | None) -> None:
    arguments = [] if name is None else [name]
    said = CliRunner().invoke(cli, [*arguments, "--help"], terminal_width=80)
    assert said.exit_code == 0 and said.output.startswith("Usage: ")
    assert [line for line in said.output.splitlines() if len(line) > 80] == []
