"""The GPU's lines in the summary, and its table."""

import csv
from pathlib import Path

from sample_report import sample, sample_on_gpu

from instrumented_backend.records import GpuSection, Report, notes
from instrumented_backend.views.files import write_files
from instrumented_backend.views.page.charts import gpu_bars
from instrumented_backend.views.text import gpu_lines, render


def with_row(number: int = 0, **fields: object) -> Report:
    report = sample_on_gpu()
    vars(report.gpu.gpus[number]).update(fields)
    return report


def test_the_third_line() -> None:
    line = render(sample_on_gpu(), ("summary",), 400).splitlines()[2]
    assert line == "GPU: compiled code 60 %, eager 20 %, idle 20 % · launch-bound"


def test_idle_under_one_percent_is_left_out() -> None:
    report = with_row(captured_pct=60.0, eager_pct=39.5, idle_pct=0.5, verdict="GPU-bound")
    assert gpu_lines(report) == ["GPU: compiled code 60 %, eager 40 % · GPU-bound"]


def test_a_large_spread_is_said() -> None:
    (line,) = gpu_lines(with_row(spread_pct=7.2, verdict=None))
    assert line.endswith("idle 20 % · sampled, ± 7 points; INSTRUMENTED_OPS=always sees more")


def test_several() -> None:
    report = sample_on_gpu()
    (row,) = report.gpu.gpus
    report.gpu.gpus = [row] * 2
    assert [line[:7] for line in gpu_lines(report)] == ["GPU 0: "] * 2


def test_no_gpu_no_line() -> None:
    assert gpu_lines(sample()) == []
    assert gpu_bars(sample().gpu) == []


def test_why_it_is_unknown() -> None:
    report = sample()
    report.gpu = GpuSection(note="no window saw one", note_code=notes.GPU_UNKNOWN)
    assert gpu_lines(report) == ["GPU: where its time went is unknown: no window saw one"]


def test_the_file(tmp_path: Path) -> None:
    write_files(sample_on_gpu(), tmp_path)
    (path,) = tmp_path.glob("gpu.*.csv")
    with path.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["gpu"], row["captured_s"], row["verdict"]) == ("0", "0.27", "launch-bound")


def test_the_bar() -> None:
    """0.27, 0.09 and 0.09 s of 0.45."""
    (bar,) = gpu_bars(sample_on_gpu().gpu)
    assert [part.label for part in bar.parts] == ["compiled code", "eager", "idle"]
