"""The outputs in the README and the pages: what their commands print now has the same structure."""

from pathlib import Path

import pytest
from outputs import PAGES, blocks_of, difference, printed
from speeds import full_but

WITH_OUTPUTS = {
    page.stem: page for page in PAGES if any(block.compiles for block in blocks_of(page))
}


@pytest.mark.parametrize("name", full_but(WITH_OUTPUTS, "README"))
def test_outputs(name: str, tmp_path: Path) -> None:
    """`python docs/outputs.py` writes them anew."""
    for block, now in printed(blocks_of(WITH_OUTPUTS[name]), tmp_path):
        if differing := difference(block, now):
            pytest.fail(differing)
