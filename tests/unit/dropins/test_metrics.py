"""The public names of ``instrumented_backend.metrics``, and that each does what Inductor's does."""

import ast
import csv
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import kernel_data
import pytest
from torch._inductor import config
from torch._inductor import metrics as inductor

from instrumented_backend import metrics, settings
from instrumented_backend.kernels.graph_module import ParseError

KERNELS = {**kernel_data.named("plain", "kernel"), **kernel_data.named("bk", "kernel")}


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def own_table() -> Any:
    metrics.MetricTable.register_table("own", ["text", "number", "nothing"])
    yield metrics.get_metric_table("own")
    del metrics.REGISTERED_METRIC_TABLES["own"], inductor.REGISTERED_METRIC_TABLES["own"]


def rows(name: str) -> list[list[str]]:
    with open(f"metric_table_{name}.csv", newline="") as file:
        return list(csv.reader(file))


def test_exported_names() -> None:
    for name in metrics.__all__:
        assert hasattr(metrics, name)
    public = {
        name
        for name, value in vars(inductor).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == inductor.__name__
    }
    # What one of the counters is made of; reached through the module as the counters are.
    assert public - set(metrics.__all__) == {"CppOuterLoopFusedCount"}
    assert metrics.CppOuterLoopFusedCount is inductor.CppOuterLoopFusedCount


def test_the_same_tables() -> None:
    assert set(settings.METRIC_TABLES) == set(inductor.REGISTERED_METRIC_TABLES)
    assert {
        name: table.column_names for name, table in metrics.REGISTERED_METRIC_TABLES.items()
    } == {name: table.column_names for name, table in inductor.REGISTERED_METRIC_TABLES.items()}


def test_the_same_signatures() -> None:
    """Of functions and methods, by the names and order of their parameters."""

    def parameters(function: Any) -> list[str]:
        return list(inspect.signature(function).parameters)

    for name in metrics.__all__:
        theirs, ours = getattr(inductor, name), getattr(metrics, name)
        if callable(theirs):
            assert parameters(ours) == parameters(theirs), name
    for method in ("add_row", "output_filename", "write_header", "register_table"):
        theirs = getattr(inductor.MetricTable, method)
        assert parameters(getattr(metrics.MetricTable, method)) == parameters(theirs), method


def test_counters_are_inductors_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inductor, "generated_kernel_count", 5)
    assert metrics.generated_kernel_count == 5
    metrics.generated_kernel_count += 2
    assert inductor.generated_kernel_count == 7
    assert "generated_kernel_count" not in vars(metrics)
    assert metrics.nodes_num_elem is inductor.nodes_num_elem
    with pytest.raises(AttributeError, match="no_such_counter"):
        _ = metrics.no_such_counter
    metrics.reset()
    assert inductor.generated_kernel_count == 0


def test_a_table_that_is_off_costs_no_row(own_table: Any) -> None:
    assert not metrics.is_metric_table_enabled("own")
    own_table.add_row(lambda: pytest.fail("called"))
    metrics.purge_old_log_files()
    assert list(Path().iterdir()) == []


@config.patch(enabled_metric_tables=" own , graph_stats")
def test_rows(own_table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(metrics.enabled_metric_tables()) == {"own", "graph_stats"}
    own_table.add_row(lambda: {"number": 0.25, "text": "a,b", "nothing": None})
    monkeypatch.setattr(sys, "argv", ["bench.py", "--only", "BertModel"])
    # An int and a list, which Inductor's own tables refuse.
    own_table.add_row(lambda: {"text": ["buf0"], "number": 3, "nothing": None})
    assert Path("metric_table_own.csv").read_text() == (
        "model_name,text,number,nothing\n,\"a,b\",0.250000,\nBertModel,['buf0'],3,\n"
    )
    assert own_table.num_rows_added == 2


@config.patch(enabled_metric_tables="own")
def test_the_same_file_as_inductors(own_table: Any, tmp_path: Path) -> None:
    """Where Inductor's table takes a row at all."""
    theirs = inductor.MetricTable("own", own_table.column_names)
    added = [
        {"text": 'say "a", b', "number": 1 / 3, "nothing": None},
        {"text": "", "number": 1e300, "nothing": "x"},
    ]
    for row in added:
        own_table.add_row(lambda row=row: dict(row))
    assert own_table.output_filename() == theirs.output_filename()
    ours = Path(own_table.output_filename()).read_bytes()
    Path(own_table.output_filename()).unlink()
    for row in added:
        theirs.add_row(lambda row=row: dict(row))
    assert Path(theirs.output_filename()).read_bytes() == ours


@config.patch(enabled_metric_tables="own")
def test_wrong_columns(own_table: Any) -> None:
    with pytest.raises(AssertionError, match=r"own.*text, extra.*text, number, nothing"):
        own_table.add_row(lambda: {"text": "a", "extra": 1})
    assert own_table.num_rows_added == 0


@config.patch(enabled_metric_tables="own,kernel_autotune")
def test_purge(own_table: Any) -> None:
    own_table.add_row(lambda: {"text": "a", "number": 1, "nothing": None})
    metrics.purge_old_log_files()
    assert rows("own") == [["model_name", "text", "number", "nothing"]]
    assert rows("kernel_autotune")[0][0] == "model_name"
    own_table.add_row(lambda: {"text": "b", "number": 1, "nothing": None})
    assert rows("own")[1:] == [["", "b", "1", ""]]


@config.patch(enabled_metric_tables="own")
def test_the_folder(own_table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder of the moment, or INSTRUMENTED_DIR."""
    for name in ("one", "two"):
        Path(tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        own_table.add_row(lambda: {"text": "a", "number": 1, "nothing": None})
        assert len(rows("own")) == 2
    given = settings.load({"INSTRUMENTED_DIR": str(tmp_path / "given")})
    monkeypatch.setattr(settings, "of_process", lambda: given)
    assert own_table.output_filename() == str(tmp_path / "given" / "metric_table_own.csv")
    own_table.add_row(lambda: {"text": "a", "number": 1, "nothing": None})
    assert Path(own_table.output_filename()).exists() and len(rows("own")) == 2


def test_unknown_tables() -> None:
    with pytest.raises(AssertionError, match="nonsense"):
        metrics.get_metric_table("nonsense")
    with config.patch(enabled_metric_tables="nonsense"), pytest.raises(AssertionError):
        metrics.enabled_metric_tables()


def test_a_table_registered_with_inductor() -> None:
    inductor.MetricTable.register_table("theirs", ["a"])
    try:
        with config.patch(enabled_metric_tables="theirs"):
            metrics.get_metric_table("theirs").add_row(lambda: {"a": 3})
        assert rows("theirs") == [["model_name", "a"], ["", "3"]]
        assert settings.read_metric_tables("theirs, graph_stats") == ("theirs", "graph_stats")
    finally:
        del inductor.REGISTERED_METRIC_TABLES["theirs"], metrics.REGISTERED_METRIC_TABLES["theirs"]


@config.patch(enabled_metric_tables="kernel_autotune")
def test_log_kernel_autotune_result() -> None:
    metrics.log_kernel_autotune_result("/k.py", "triton_0", {"XBLOCK": 8}, 0.125)
    assert rows("kernel_autotune") == [
        ["model_name", "kernel_path", "kernel_name", "triton_config", "latency_ms"],
        ["", "/k.py", "triton_0", "{'XBLOCK': 8}", "0.125000"],
    ]


def log_and_read(name: str, path: str, code: str) -> dict[str, str]:
    with config.patch(enabled_metric_tables="kernel_metadata"):
        metrics.log_kernel_metadata(name, path, code)
    header, *_, last = rows("kernel_metadata")
    return dict(zip(header, last, strict=True))


def test_log_kernel_metadata() -> None:
    code = KERNELS["bk/reduction.kernel2.py"]
    # By hand from the file. 64 rows of 7 floats are read, 64 written: (448 + 64) * 4 B = 2048 B.
    assert log_and_read("triton_per_0", "/cache/k.py", code) == {
        "model_name": "",
        "kernel_name": "triton_per_0",
        "kernel_path": "/cache/k.py",
        "kernel_category": "persistent_reduction",
        "size_hints": "{'x': 64, 'r0_': 8}",
        "reduction_hint": "INNER",
        "line_of_code": "21",
        "num_load": "1",
        "num_store": "1",
        "num_for_loop": "0",
        "num_atomic_add": "0",
        "num_args": "5",
        "xnumel": "64",
        "ynumel": "",
        "rnumel": "7",
        "kernel_args_num_gb": "0.000002",
    }
    # One loop over r0_numel = 7180, and no bytes in the code.
    other = log_and_read("red", "", KERNELS["plain/reduction.kernel1.py"])
    assert (other["rnumel"], other["num_for_loop"]) == ("7180", "1")
    assert other["kernel_args_num_gb"] == ""


def test_log_kernel_metadata_where_it_is_off(tmp_path: Path) -> None:
    metrics.log_kernel_metadata("k", "/k.py", "not a kernel")
    assert list(tmp_path.iterdir()) == []


def test_code_that_is_no_kernel(tmp_path: Path) -> None:
    """Said in one line, and nothing in it is run."""
    for code in ("def f(", "x = 1", "", f"open({str(tmp_path / 'ran')!r}, 'w')"):
        with pytest.raises(ParseError) as error:
            log_and_read("k", "/k.py", code)
        assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


# Where Inductor reads the text of one kernel and means another, or does not know the decorator.
CORRECTED = {
    "combo.kernel1.py": {
        "kernel_category": "combo",  # not of its first part
        "xnumel": "",  # several parts, each with its own
    },
    "scan.kernel1.py": {"reduction_hint": "INNER"},  # it asks reductions only
    "user_triton.kernel2.py": {"kernel_category": "user_autotune"},
}


@pytest.mark.parametrize("kernel", [*KERNELS])
def test_the_same_metadata_as_inductors_own(kernel: str) -> None:
    """Compared with Inductor's helper functions, all but the one that fails (size hints).

    They look for patterns in the text, so they are given the text without comments (one has the
    word "for" in it) and the name that a reduction's size has today; numbers like 2.048e-06, which
    they cut after the 8, are looked for here.
    """
    from torch._inductor.wrapper_benchmark import get_kernel_category_by_source_code

    code = KERNELS[kernel]
    (function,) = (
        node
        for node in ast.parse(code).body
        if isinstance(node, ast.FunctionDef) and len(node.decorator_list) == 2
    )
    body = "\n".join(code.split("\n")[function.lineno - 1 : function.end_lineno])
    without_comments = re.sub(r"#.*", "", body)
    category = get_kernel_category_by_source_code(code)
    reduced = "r0_numel" if "rnumel = r0_numel" in body else "rnumel"
    gb = re.search(r"'kernel_num_gb': ([0-9.e-]+)", code)
    theirs = {
        "kernel_category": category,
        "reduction_hint": inductor._parse_reduction_hint(category, code),
        "line_of_code": inductor._parse_kernel_line_of_code(body),
        "num_load": inductor._count_pattern(body, "tl.load"),
        "num_store": inductor._count_pattern(body, "tl.store"),
        "num_for_loop": inductor._count_pattern(without_comments, "for "),
        "num_atomic_add": inductor._count_pattern(body, "tl.atomic_add"),
        "num_args": inductor._count_args(body),
        "xnumel": inductor._parse_numel(body, "xnumel"),
        "ynumel": inductor._parse_numel(body, "ynumel"),
        "rnumel": inductor._parse_numel(body, reduced),
        "kernel_args_num_gb": float(gb[1]) if gb else None,
    }
    expected = {
        name: "" if value is None else f"{value:.6f}" if isinstance(value, float) else str(value)
        for name, value in theirs.items()
    }
    ours = log_and_read("k", "/k.py", code)
    assert {name: ours[name] for name in theirs} == {
        **expected,
        **CORRECTED.get(kernel.split("/")[1], {}),
    }
