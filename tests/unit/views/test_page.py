"""The page: its sums are the report's, and text of others is text."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from page_report import HOSTILE, PROGRAM, digest, hostile_report, page_report
from parsed_page import Parsed

from instrumented_backend.commands import cli
from instrumented_backend.records import (
    GPU_BOUND,
    LAUNCH_BOUND,
    STREAM_BOUND,
    FileRecord,
    GpuRow,
    LineRecord,
    Report,
)
from instrumented_backend.views import shown
from instrumented_backend.views.page.annotated import states, told
from instrumented_backend.views.page.page import render_page, to_bytes, verdict
from instrumented_backend.views.words import function


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return page_report(tmp_path)


def test_sums_are_the_reports(report: Report) -> None:
    page = Parsed(render_page([report]))
    lines = [attributes for _, attributes in page.elements if "data-t" in attributes]
    assert sum(int(line["data-c"] or 0) for line in lines) == report.summary.captured_ops == 30
    assert sum(int(line["data-e"] or 0) for line in lines) == 10
    assert math.fsum(float(line["data-t"] or 0) for line in lines) == 1_000.0
    for name in ("captured_ops", "graphs", "graph_breaks", "recompiles"):
        assert page.values("data-v", k=name) == [str(getattr(report.summary, name))]
    # The sums below the tables: calls of both graphs, 3 + 4; ops and time of the eager ops.
    assert page.values("data-v", c="calls") == ["7"]
    assert page.values("data-v", c="count") == ["10"]
    assert page.values("data-v", c="time_us") == ["1000.0"]
    ledger = [page.values("data-v", k=row) for row in ("captured", "eager_ops", "python")]
    assert ledger == [["1.0"], ["0.25"], ["0.25"]]


def test_states_of_lines(report: Report) -> None:
    assert [(line.line, states(line)) for line in report.lines] == [
        (5, ["captured", "eager", "broken"]),
        (6, ["eager"]),
        (4, ["captured"]),
        (3, ["recompiled"]),
    ]
    assert told(report.lines[0], report.ops.missing[:1]) == (
        "6 ops captured (sum); 7 eager ops, 750 µs (aten::item); the graph breaks here"
    )
    assert states(LineRecord("a.py", 1, called={"sin": 1}, captured_ops=0)) == ["captured"]


def test_the_source_is_that_of_the_run(report: Report, tmp_path: Path) -> None:
    page = Parsed(render_page([report]))
    assert all(line in page.text for line in PROGRAM.splitlines())
    (tmp_path / "program.py").write_text(PROGRAM.replace("loss", "losses"))
    page = Parsed(render_page([report]))
    assert "it has changed since the program ran" in page.text
    assert "return y.add(1)" not in page.text
    (tmp_path / "program.py").unlink()
    assert "not on this machine" in Parsed(render_page([report])).text


def test_the_source_of_a_run_on_another_machine(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout has it under another root, if it is the same to the byte."""
    there, here = "/cluster/job/model/program.py", tmp_path / "checkout" / "model" / "program.py"
    for line in report.lines:
        line.file = there
    report.files[0].file = there
    here.parent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "checkout")
    assert "not on this machine" in Parsed(render_page([report])).text
    here.write_text(PROGRAM)
    assert "return y.add(1)" in Parsed(render_page([report])).text
    here.write_text(PROGRAM.replace("add", "mul"))
    text = Parsed(render_page([report])).text
    assert "return y.mul(1)" not in text and "has changed" in text


def test_windows_line_ends_and_no_last_one(report: Report, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_bytes(b"\xef\xbb\xbfx = 1\r\ny = 2")
    report.files = [FileRecord(report.files[0].file, digest("x = 1\ny = 2\n"))]
    text = Parsed(render_page([report])).text
    assert "has changed" not in text and "y = 2" in text


def test_without_source(report: Report) -> None:
    text = Parsed(render_page([report], source=False)).text
    assert "left out: --no-source" in text and "return y.add(1)" not in text
    assert "model(x).relu()" not in text


def test_nothing_is_loaded(report: Report) -> None:
    page = Parsed(render_page([report]))
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"link", "img", "iframe", "object", "embed", "base"}
    assert page.values("src") == []
    assert all(link.startswith("#") for link in page.values("href"))


def test_every_link_has_its_target(report: Report) -> None:
    page = Parsed(render_page([report, report]))
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in page.values("href")} <= set(ids)


def test_hostile_text_is_text(tmp_path: Path) -> None:
    report = hostile_report(tmp_path)
    report.files[1].sha256 = digest((tmp_path / "text.py").read_text(errors="surrogateescape"))
    whole = render_page([report])
    page = Parsed(whole)
    assert sum(tag == "script" for tag, _ in page.elements) == 1
    assert not {"img"} & {tag for tag, _ in page.elements}
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert not set("\u202e\x1b\udcff") & set(whole)
    assert "<script>window.hacked=1</script></style>" in page.text
    assert "\\u202e\\x1b[31m\\xff" in page.text
    to_bytes(whole).decode()
    assert len(whole) < 400_000  # of a line with 100,000 characters the first thousand


def test_the_hostile_text_is_hostile() -> None:
    assert Parsed(f"<p>{HOSTILE}").elements[1][0] == "script"


def test_long_files_are_shown_in_part(report: Report, tmp_path: Path) -> None:
    source = "".join(f"x{number} = {number}\n" for number in range(1, 2_001))
    (tmp_path / "program.py").write_text(source)
    report.files[0].sha256 = digest(source)
    report.lines[0].line = 1_000
    text = Parsed(render_page([report])).text
    assert "x1000" in text and "x988" in text and "x1012" in text
    assert "x1013" not in text and "x500" not in text
    assert "969 lines where nothing was seen" in text  # from 6 + 12 to 1,000 - 12


def test_a_report_of_an_earlier_release(report: Report) -> None:
    report.lines, report.files = [], []
    assert "written by an earlier release" in Parsed(render_page([report])).text


def test_several_ranks(tmp_path: Path) -> None:
    reports = [page_report(tmp_path, rank) for rank in range(2)]
    reports[1].summary.recompiles = 5
    page = Parsed(render_page(reports))
    assert "recompiles · differs" in page.text and "graphs · differs" not in page.text
    assert [tag for tag, attributes in page.elements if "hidden" in attributes].count(
        "article"
    ) == 1


def test_the_verdict(report: Report) -> None:
    assert verdict(report).replace("\N{NO-BREAK SPACE}", " ") == (
        "50.0 % of 2.00 s was spent in compiled code (1 graph, called 3 times); "
        "start-up took most of the rest (25.0 %)."
    )
    report.ledger.rows = []
    assert verdict(report) == "1 graph, called 3 times; where the time went is not known."


def test_the_verdict_on_gpus(report: Report) -> None:
    one = GpuRow(0, "H100", 6.0, 3.0, 1.0, 60.0, 30.0, 10.0, 1.0, 0.0, LAUNCH_BOUND, 5.0, "sampled")
    report.gpu.timeline_s, report.gpu.gpus = 10.0, [one, replace(one, device=1)]
    assert verdict(report).endswith("The GPU waits for the host: launch-bound.")
    for row in report.gpu.gpus:
        row.verdict = STREAM_BOUND
    assert verdict(report).endswith("waits for copies or collectives on other streams.")
    report.gpu.gpus[1].verdict = GPU_BOUND
    assert "bound" not in verdict(report)  # the bars tell each of them
    report.lines[0].eager_gpu_us = 1_500.0
    assert "1.5 ms of the GPU's timeline" in Parsed(render_page([report])).text


def test_what_to_do_next(report: Report) -> None:
    """Each step with its place, a link where the line is shown, and no words twice."""
    report.breaks[0].eager_time_us = 250_000.0
    page = Parsed(render_page([report]))
    assert "at most" in page.text and "only a trial tells:" not in page.text
    (link,) = {link for link in page.values("href") if link == "#r0-f0-5"}
    assert link[1:] in page.values("id")


def test_names_of_the_rest_of_a_function() -> None:
    name = "torch_dynamo_resume_in_forward_at_19"
    assert function(name) == "forward from line 19 on"
    assert function(f"{name} recompiled") == "forward from line 19 on recompiled"
    assert function("forward") == "forward"


def test_lines_that_breaks_name_can_be_reached(report: Report) -> None:
    """No op was seen on them."""
    report.breaks[0].called_file, report.breaks[0].called_line = report.lines[0].file, 1
    page = Parsed(render_page([report]))
    assert "#r0-f0-1" in page.values("href") and "r0-f0-1" in page.values("id")
    report.breaks[0].called_line = 1_000  # the file has six lines
    assert "#r0-f0-1000" not in Parsed(render_page([report])).values("href")


# --- Where it is asked for ----------------------------------------------------------------------


def test_the_command(report: Report, tmp_path: Path) -> None:
    file = tmp_path / "report.rank0.pid17.json"
    file.write_text(report.to_json())
    run = CliRunner().invoke(cli, ["report", str(file)])
    assert run.exit_code == 0 and "report.rank0.pid17.html" in run.output
    beside = file.with_suffix(".html").read_bytes()
    assert b"y.add(" in beside
    run = CliRunner().invoke(cli, ["report", str(tmp_path), "--no-source", "-o", "-"])
    assert run.stdout_bytes.startswith(b"<!doctype html>") and b"y.add(" not in run.stdout_bytes
    run = CliRunner().invoke(cli, ["report", str(tmp_path / "nothing.json")])
    assert run.exit_code == 2 and "nothing.json: cannot be read" in run.output
    run = CliRunner().invoke(cli, ["report", str(file), "-o", "/dev/null/page.html"])
    assert run.exit_code == 2 and "name another with -o" in run.output


def test_what_a_report_shows_of_itself(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("drawn_as_text", "drawn_as_html"):
        monkeypatch.setattr(Report, name, getattr(Report, name))
    shown.install()
    assert str(report).startswith("instrumented: 1 graph, 3 calls")
    in_cell = report._repr_html_()
    assert in_cell is not None
    (frame,) = Parsed(in_cell).elements
    assert frame[0] == "iframe" and "allow-same-origin" not in str(frame[1]["sandbox"])
    assert (frame[1]["srcdoc"] or "").startswith("<!doctype html>")


def test_a_report_with_next_to_nothing_in_it(report: Report) -> None:
    report.graphs, report.kernels, report.breaks, report.recompiles = [], [], [], []
    report.lines, report.files, report.compiled = [], [], []
    report.ops.missing, report.ops.eager, report.compile.compilations = [], [], []
    report.compile.phases, report.counters.graphs, report.counters.outside_graphs = {}, {}, {}
    report.counters.inductor_metrics = report.counters.outside_inductor_metrics = {}
    report.summary.captured_ops = report.summary.total_ops = report.summary.pct_ops = None
    report.ledger.rows, report.ledger.wall_s = [], None
    page = Parsed(render_page([report]))
    assert "No graph." in page.text and "None moved." in page.text
    assert {link[1:] for link in page.values("href")} <= set(page.values("id"))
