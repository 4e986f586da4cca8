"""Programs that ask for this backend with a marked line, and what was said of it."""

import re
from typing import Any

from programs import Finished

SETUP = """\
import torch
from torch import nn
x = torch.ones(2, 4)
"""


def line_of(program: str, mark: str) -> int:
    (line,) = (n for n, text in enumerate(program.splitlines(), 1) if f"# {mark}" in text)
    return line


def first_line(done: Finished) -> str:
    """The summary's first sentence, which a terminal shows in several lines."""
    said = done.stderr[done.stderr.index("instrumented: ") :]
    return re.sub(r"\s+", " ", said.split("instrumented: ")[1])


def only(done: Finished) -> dict[str, Any]:
    (record,) = done.report["compiled"]
    return record
