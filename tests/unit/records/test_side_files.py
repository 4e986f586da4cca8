"""Files beside Inductor's cache: bounded, whole, and of use or not there."""

from pathlib import Path

from instrumented_backend.kernels.sidecar import (
    Anchor,
    GeneratorFacts,
    read_sidecar,
    write_sidecar,
)
from instrumented_backend.records.side_files import load, save, side_file


def test_where_they_are() -> None:
    module = "/cache/ab/cab.py"
    assert side_file(module, "kernels") == Path("/cache/instrumented/kernels/cab.json")
    by_key = side_file(module, "graph_stats", "fkey")
    assert by_key == Path("/cache/instrumented/graph_stats/fkey.cab.json")


def test_a_side_file_is_bounded_and_whole(tmp_path: Path) -> None:
    path = side_file(str(tmp_path / "ab" / "cab.py"), "graph_stats", "fkey")
    assert load(path) is None
    save(path, [[3, 1]])
    assert load(path) == [[3, 1]]
    save(path, "x" * 600_000)
    assert load(path) == [[3, 1]]
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    for useless in ("", "[]", "null", '{"version": 99, "data": {}}', '{"data": 3}', "{", "\0"):
        path.write_text(useless)
        assert load(path) is None


def test_the_kernels_facts(tmp_path: Path) -> None:
    module = str(tmp_path / "ab" / "cab.py")
    assert read_sidecar(module) == {}
    write_sidecar(module, {"k": GeneratorFacts(aten_ops=["aten.add"])})
    assert read_sidecar(module) == {"k": GeneratorFacts(aten_ops=["aten.add"])}
    save(side_file(module, "kernels"), ["of another form"])
    assert read_sidecar(module) == {}


def test_lines_of_kernels_are_kept_once(tmp_path: Path) -> None:
    module, line = str(tmp_path / "ab" / "cab.py"), f"/home/{'long/' * 20}model.py:3"
    facts = GeneratorFacts(
        aten_ops=["aten.add", "aten.view"],
        source_lines=[line, "m.py:4"],
        op_lines={"aten.add": ["m.py:4", line]},
        anchors={line: Anchor("add", 0, 7)},
    )
    write_sidecar(module, {"k": facts, "k_1": facts})
    assert read_sidecar(module) == {"k": facts, "k_1": facts}
    file = side_file(module, "kernels")
    assert file.read_text().count("model.py") == 1
    file.write_text(file.read_text().replace("[0, 1]", "[0, 9]"))  # the file is damaged
    assert read_sidecar(module) == {}


def test_an_earlier_releases_facts(tmp_path: Path) -> None:
    module = str(tmp_path / "ab" / "cab.py")
    save(
        side_file(module, "kernels"), {"k": {"aten_ops": ["aten.add"], "source_lines": ["m.py:3"]}}
    )
    known = GeneratorFacts(aten_ops=["aten.add"], source_lines=["m.py:3"])
    assert read_sidecar(module) == {"k": known}
