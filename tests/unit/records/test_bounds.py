"""Reports and side files that nobody of ours wrote: refused in one line, or of no use."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from calling import call, is_one_line
from kernel_data import graph_module, kernel_module, modules, only
from sample_report import sample

from instrumented_backend.kernels.code_files import read_file
from instrumented_backend.records import side_files
from instrumented_backend.records.bounded import NotReadable, read_text

HUGE = "9" * 5000


def put(folder: Path, text: str) -> Path:
    path = folder / "report.rank0.pid1.json"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", [7, [], {}, "a\0b", "\ud800", "x" * 5000])
def test_a_path_of_code_that_is_none(tmp_path: Path, path: Any) -> None:
    data = json.loads(sample().to_json())
    data["graphs"][0]["code"][0]["path"] = path
    report = put(tmp_path, json.dumps(data))
    assert is_one_line(call("bench", report))
    shown = call("show", report)
    assert shown.returncode == (0 if isinstance(path, str) else 2)
    assert isinstance(path, str) or "graphs[0].code[0].path: expected str" in shown.stderr


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, f'{{"schema_version": {HUGE}}}']
)
def test_a_report_of_depths_and_digits(tmp_path: Path, text: str) -> None:
    done = call("show", put(tmp_path, text))
    assert is_one_line(done) and len(done.stderr) < 400


def test_what_is_larger_than_it_may_be(tmp_path: Path) -> None:
    path = put(tmp_path, "x" * 1001)
    with pytest.raises(NotReadable, match="larger than"):
        read_text(path, 1000)
    assert read_text(path, 1001) == "x" * 1001


@pytest.mark.parametrize(
    "content", ["[" * 100_000, f'{{"version": 1, "data": {HUGE}}}', "x" * 2_000_000, "\ud800", None]
)
def test_a_side_file_of_no_use(tmp_path: Path, content: str | None) -> None:
    """It is as if there were none; a pipe nobody writes to is not waited for."""
    module = tmp_path / "ab" / "cabgraph.py"
    module.parent.mkdir()
    module.write_text(modules()["cpp/dynamic.py"])
    without = read_file(module)
    side = side_files.side_file(str(module), "kernels")
    side.parent.mkdir(parents=True)
    if content is None:
        os.mkfifo(side)
    else:
        side.write_bytes(content.encode("utf-8", "surrogatepass"))
    assert read_file(module) == without


def test_keys_that_no_dict_can_have() -> None:
    """Found by the fuzz suite: it was a traceback."""
    text = kernel_module("pass").replace("{'x': 1024}", "{{'a': 1}: 2, [3]: 4}")
    assert only(text).size_hints == {"{'a': 1}": 2, "[3]": 4}
    assert only(graph_module(f"k = async_compile.triton('k', '''\n{text}''')")).kernel_name == "k"
