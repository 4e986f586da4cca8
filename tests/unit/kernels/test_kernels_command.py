"""The command ``kernels`` on modules that have none."""

from pathlib import Path

import pytest
from calling import call
from kernel_data import graph_module

# What Inductor generates for ``x.t()``: views only.
NOTHING = graph_module("", "return (reinterpret_tensor(args[0], (5, 4), (1, 5), 0),)")


@pytest.mark.parametrize(
    ("layout", "out", "err"),
    [
        ("table", "no kernel in it\n", ""),
        ("json", "[]\n", "no kernel in it\n"),
        ("csv", "", "no kernel in it\n"),
    ],
)
def test_a_graph_without_kernels(tmp_path: Path, layout: str, out: str, err: str) -> None:
    (tmp_path / "graph.py").write_text(NOTHING)
    for path in (tmp_path / "graph.py", tmp_path):
        done = call("kernels", path, "--format", layout)
        assert (done.returncode, done.stdout, done.stderr) == (0, out, err)


def test_a_graph_without_kernels_beside_what_is_none(tmp_path: Path) -> None:
    (tmp_path / "graph.py").write_text(NOTHING)
    (tmp_path / "other.py").write_text("print('mine')\n")
    done = call("kernels", tmp_path)
    assert (done.returncode, done.stdout) == (0, "no kernel in it\n")
    assert done.stderr == "1 files are no generated code: left out\n"
