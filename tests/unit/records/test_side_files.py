"""Files beside Inductor's cache: bounded, whole, and of use or not there."""

from pathlib import Path

from instrumented_backend.kernels.sidecar import (
    GeneratorFacts,
    GraphLines,
    Sidecar,
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
    assert save(path, [[3, 1]])
    assert load(path) == [[3, 1]]
    assert not save(path, "x" * 600_000)
    assert load(path) == [[3, 1]]
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    for useless in ("", "[]", "null", '{"version": 99, "data": {}}', '{"data": 3}', "{", "\0"):
        path.write_text(useless)
        assert load(path) is None


def test_the_kernels_facts(tmp_path: Path) -> None:
    module = str(tmp_path / "ab" / "cab.py")
    assert read_sidecar(module) == Sidecar()
    lines = GraphLines("digest", ["/home/me/model.py:3"], [0, -1], {"mm": 0})
    sidecar = Sidecar({"k": GeneratorFacts(aten_ops=["aten.add"])}, lines)
    write_sidecar(module, sidecar)
    assert read_sidecar(module) == sidecar
    lines.places *= 50_000
    write_sidecar(module, sidecar)
    assert read_sidecar(module) == Sidecar(sidecar.kernels)
    save(side_file(module, "origins"), ["of another form"])
    assert read_sidecar(module) == Sidecar()
