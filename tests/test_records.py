"""The report file: whole when read again, refused when it is something else."""

import json
from pathlib import Path

import pytest

from instrumented_backend.records import (
    SCHEMA_VERSION,
    BreakRecord,
    CodeRecord,
    CompileRecord,
    EagerOpRecord,
    GraphRecord,
    GuardRecord,
    KernelRecord,
    MissingRecord,
    OpsRecord,
    RecompileRecord,
    Report,
    ReportError,
    SkippedRecord,
    read_report,
)


def sample() -> Report:
    """One of everything; the tests of the views draw it too."""
    graph = GraphRecord(
        graph=0,
        compile_id="0/0",
        function="forward",
        file="/home/me/model.py",
        line=12,
        ops=7,
        calls=3,
        backward_calls=2,
        code=[CodeRecord("forward", "/cache/ab/cab.py", ["cpp_fused_add_0"])],
        cache="hit",
        aot_autograd_cache="hit",
        fx_graph_cache={"hits": 2, "misses": 0, "bypasses": 0},
        compile_s={"dynamo_s": 0.5, "aot_autograd_s": 0.25},
        inductor_metrics={"generated_kernel_count": 1},
        counters={"aot_autograd": {"autograd_cache_hit": 1}},
    )
    return Report(
        run={"torch": "2.13.0+cpu", "device": "cpu", "rank": 0, "pid": 17, "wall_s": 1.5},
        summary={
            "graphs": 1,
            "graph_calls": 3,
            "backward_calls": 2,
            "graph_breaks": 1,
            "skipped_functions": 1,
            "recompiles": 1,
            "graph_ops": 7,
            "captured_ops": 30,
            "total_ops": 40,
            "pct_ops": 75.0,
            "pct_time": 90.0,
        },
        graphs=[graph],
        kernels=[KernelRecord("cpp_fused_add_0", "cpp", 0, "forward", "/cache/ab/cab.py")],
        ops=OpsRecord(
            status="sampled",
            observed_pct=17.0,
            captured={
                "ops": 30,
                "forward_ops": 20,
                "backward_ops": 10,
                "time_us": 9000.0,
                "estimated": [],
            },
            total_ops=40,
            total_time_us=10_000.0,
            pct_ops_spread=0.25,
            pct_time_spread=1.5,
            eager=[EagerOpRecord("aten::add", 10, 1000.0, 100.0)],
            missing=[
                MissingRecord("aten::add", "/home/me/model.py", 16, "step", 10, 1000.0, 100.0)
            ],
            note=None,
        ),
        breaks=[
            BreakRecord(
                kind="skipped",
                reason="Failed to trace print",
                file="/home/me/model.py",
                line=14,
                function="block",
                count=2,
                source='print("hi")',
                hint="Avoid calling it.",
                skipped=[SkippedRecord("forward", "/home/me/model.py", 12, "graph break in loop")],
                graphs_before=[0],
                graphs_after=[1],
                eager_ops=10,
                eager_time_us=1000.0,
            ),
        ],
        recompiles=[
            RecompileRecord(
                "0/1",
                "forward",
                "/home/me/model.py",
                12,
                "size mismatch",
                compile_s=2.5,
                guards=[
                    GuardRecord(
                        kind="shape",
                        subject="size of x in dimension 0",
                        values=["4", "5"],
                        count=1,
                        file="/home/me/model.py",
                        line=13,
                        source="x = x + 1",
                        cure="mark_dynamic",
                    )
                ],
            )
        ],
        caches={
            "graphs": {"hit": 1, "miss": 0, "bypass": 0, "off": 0},
            "aot_autograd": {"hit": 1},
            "fx_graph": {"hits": 2, "misses": 0, "bypasses": 0},
            "bypass_reasons": {},
        },
        counters={
            "inductor_metrics": {"generated_kernel_count": 1},
            "graphs": {"aot_autograd": {"autograd_cache_hit": 1}},
            "outside_inductor_metrics": {"generated_kernel_count": 0},
            "outside_graphs": {"frames": {"total": 2}},
        },
        compile={
            "total_s": 0.75,
            "phases": {"dynamo_s": 0.5, "aot_autograd_s": 0.25},
            "compilations": [
                CompileRecord(
                    "0/0",
                    "forward",
                    "forward",
                    "/home/me/model.py",
                    12,
                    "compiled",
                    [0],
                    {"dynamo_s": 0.5, "aot_autograd_s": 0.25},
                    0.75,
                )
            ],
        },
        notes=[],
    )


def test_round_trip() -> None:
    report = sample()
    assert Report.from_json(report.to_json()) == report
    assert json.loads(report.to_json())["schema_version"] == SCHEMA_VERSION == 1


def test_the_sections_of_the_contract() -> None:
    assert set(json.loads(sample().to_json())) == {
        "schema_version",
        "run",
        "summary",
        "graphs",
        "kernels",
        "ops",
        "breaks",
        "recompiles",
        "caches",
        "counters",
        "compile",
        "notes",
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON, or cut short"),
        (sample().to_json()[:500].encode(), "not JSON, or cut short"),
        (b"\x80\x81\x82", "not a report"),
        (b"[1, 2]", "not a report"),
        (b'{"traceEvents": []}', "not a report"),
        (b'{"schema_version": 99}', "schema_version is 99; this version reads 1 only"),
        (b'{"schema_version": 1}', "damaged"),
        (b'{"schema_version": 1, "compile": {}, "graphs": [{"no": 1}]}', "damaged"),
        (b'{"schema_version": 1, "compile": 3}', "damaged"),
    ],
)
def test_what_is_not_a_report(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(ReportError) as error:
        read_report(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ") and said in message and "\n" not in message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(ReportError, match=f"{path}: cannot be read: "):
            read_report(path)


def test_a_report_of_an_earlier_release_is_read() -> None:
    """Its kernels have a name, a language, a place; its breaks and recompiles little more."""
    data = json.loads(sample().to_json())
    keys = ("kernel_name", "language", "graph", "direction", "path")
    data["kernels"] = [{key: data["kernels"][0][key] for key in keys}]
    function = {"file": "/home/me/model.py", "line": 12, "function": "forward"}
    data["breaks"] = [{"kind": "skipped", "reason": "graph break in loop", "count": 1, **function}]
    data["recompiles"] = [{"compile_id": "0/1", "reason": "size mismatch", **function}]
    report = Report.from_json(json.dumps(data))
    (kernel,) = report.kernels
    assert kernel == sample().kernels[0]
    assert report.breaks[0].skipped == [SkippedRecord("forward", "/home/me/model.py", 12)]
    assert (report.recompiles[0].count, report.recompiles[0].guards) == (1, [])


def test_every_item_of_a_list_has_a_line() -> None:
    report = sample()
    report.kernels *= 3
    lines = report.to_json().splitlines()
    assert sum('"kernel_name"' in line for line in lines) == 3
