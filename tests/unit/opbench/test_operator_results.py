"""Quantiles, shares, files and text of results made by hand."""

import csv
import io
import json
from pathlib import Path

import pytest
from opbench.results import (
    FAILED,
    Journal,
    Kernel,
    Peak,
    ResultsError,
    Run,
    Sample,
    Timing,
    add_shares,
    by_operator,
    quantiles,
    ratios,
    sample_from,
    speedup_text,
    timings_text,
    to_csv,
    to_json,
)
from opbench.text import operator_block, summary

BACKENDS = ["eager", "inductor", "instrumented"]
MACHINE = {
    "torch": "2.13.0",
    "python": "3.11.7",
    "device": "cpu",
    "threads": 1,
    "peak_gb_per_s": 10.0,
    "peak_gflop_per_s": 100.0,
    "peak_dtype": "f32",
}


def sample(number: int, eager: float, inductor: float, instrumented: float) -> Sample:
    times = dict(zip(BACKENDS, (eager, inductor, instrumented), strict=True))
    made = Sample(
        "aten.add.Tensor",
        number,
        f"((T([{number}], f32), 1), {{}})",
        3,
        backends={name: Timing(time, time - 1, time + 1) for name, time in times.items()},
        total_bytes=8_000,
        bytes_source="kernels",
        compute_dtype="f32",
        kernels=[Kernel("cpp_fused_add_0", "cpp", "pointwise", 1, 8_000, None)],
    )
    add_shares(made, Peak(10.0, 100.0, "f32"))
    return made


def failed(number: int, reason: str) -> Sample:
    return Sample("aten.mm.default", number, "((), {})", 1, FAILED, reason)


def run(*samples: Sample) -> Run:
    settings = {"backends": BACKENDS}
    return Run(settings, MACHINE, {"aten.view.default": "a view: it moves no data"}, list(samples))


def test_quantiles() -> None:
    # Places 0.2·4 = 0.8, 0.5·4 = 2, 0.8·4 = 3.2 in 1, 2, 3, 4, 10.
    assert quantiles([10, 1, 4, 2, 3]) == pytest.approx([1.8, 3, 5.2])
    assert quantiles([7]) == [7, 7, 7]
    assert quantiles([1, 2]) == pytest.approx([1.2, 1.5, 1.8])


def test_speedups_and_shares() -> None:
    made = sample(1, 4.0, 2.0, 1.0)
    assert [timing.speedup for timing in made.backends.values()] == [1.0, 2.0, 4.0]
    # 8000 bytes in 4, 2, 1 µs: 2, 4, 8 GB/s of 10.
    assert [timing.gb_per_s for timing in made.backends.values()] == [2.0, 4.0, 8.0]
    assert [timing.pct_of_peak for timing in made.backends.values()] == [20.0, 40.0, 80.0]
    assert made.limit == "bandwidth"


def test_the_nearer_limit_counts() -> None:
    made = Sample(
        "aten.mm.default",
        0,
        "",
        1,
        backends={"eager": Timing(2.0, 2.0, 2.0)},
        total_bytes=2_000,  # 1 GB/s of 10
        flops=100_000,  # 50 GFLOP/s of 100
        compute_dtype="f32",
    )
    add_shares(made, Peak(10.0, 100.0, "f32"))
    timing = made.backends["eager"]
    assert (timing.gflop_per_s, timing.pct_of_peak, made.limit) == (50.0, 50.0, "compute")
    # A peak of another dtype says nothing.
    add_shares(made, Peak(10.0, 100.0, "f16"))
    assert (timing.pct_of_peak, made.limit) == (10.0, "bandwidth")


def test_unknown_bytes_are_null() -> None:
    made = Sample("aten.mm.default", 0, "", 1, backends={"eager": Timing(2.0, 2.0, 2.0)})
    add_shares(made, Peak(10.0, None, None))
    assert made.backends["eager"] == Timing(2.0, 2.0, 2.0, speedup=1.0)


def test_ratios_pass_over_what_was_not_timed() -> None:
    found = ratios([sample(0, 9, 2, 3), failed(0, "x")], "instrumented", "inductor")
    assert found == [1.5]


def test_the_original_lines() -> None:
    samples = [sample(0, 4, 2, 1), sample(1, 4, 4, 2)]
    # Inductor: 2 and 1; instrumented: 4 and 2.
    assert (
        speedup_text("inductor", [1.2, 1.5, 1.8]) == "Inductor Speedups : [1.2000, 1.5000, 1.8000]"
    )
    assert timings_text(run(*samples, failed(0, "x"))) == (
        "aten.add.Tensor: Inductor Speedups : [1.2000, 1.5000, 1.8000], "
        "Instrumented Speedups : [2.4000, 3.0000, 3.6000]\n"
    )


def test_json_is_read_again() -> None:
    samples = [sample(0, 4, 2, 1), failed(0, "no answer")]
    data = json.loads(to_json(run(*samples)))
    assert data["schema_version"] == 1
    assert data["machine"]["peak_gb_per_s"] == 10.0
    assert data["skipped_operators"] == {"aten.view.default": "a view: it moves no data"}
    assert [sample_from(item) for item in data["samples"]] == samples


def test_csv() -> None:
    made = sample(0, 4, 2, 1)
    made.accuracy = {"inductor": "ok"}
    rows = list(csv.DictReader(io.StringIO(to_csv(run(made, failed(3, "no answer"))))))
    assert [row["operator"] for row in rows] == ["aten.add.Tensor", "aten.mm.default"]
    assert rows[0]["inputs"] == "((T([0], f32), 1), {})"
    assert float(rows[0]["inductor_speedup"]) == 2.0
    assert float(rows[0]["instrumented_pct_of_peak"]) == 80.0
    assert rows[0]["kernels"] == "cpp_fused_add_0"
    assert rows[0]["accuracy"] == "inductor: ok"
    assert (rows[1]["status"], rows[1]["reason"]) == ("failed", "no answer")
    assert rows[1]["eager_median_us"] == rows[1]["kernels"] == ""


def test_a_journal_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "run" / "x.jsonl"
    journal = Journal(path, {"dtype": "float32"})
    assert journal.resume() == []  # nothing there is a start
    one, two = sample(0, 4, 2, 1), failed(1, "x")
    journal.append(one)
    journal.append(two)
    with path.open("a") as file:
        file.write('{"operator": "aten.add')  # stopped in the middle of a line
    assert journal.resume() == [one, two]
    journal.append(one)
    assert journal.resume() == [one, two, one]
    journal.start()
    assert journal.resume() == []


@pytest.mark.parametrize(
    "content, complaint",
    [
        ('{"settings": {"dtype": "float16"}}\n', "had dtype 'float16', this one has 'float32'"),
        ("", "not from an earlier run"),
        ("[]\n", "not from an earlier run"),
        ('{"settings": {"dtype": "float32"}}\n{"operator": 1}\n', ":2: damaged"),
    ],
)
def test_a_journal_of_another_run(content: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(ResultsError, match=complaint):
        Journal(path, {"dtype": "float32"}).resume()
    assert path.read_text() == content


def test_text_is_clear_at_80_columns() -> None:
    long = sample(0, 4e3, 2e6, 1)
    long.operator = "aten._scaled_dot_product_efficient_attention_backward.default"
    inaccurate = sample(2, 40, 20, 10)
    inaccurate.accuracy = {"inductor": "largest difference 3", "instrumented": "ok"}
    reason = "RuntimeError: " + "a long story " * 20
    samples = [sample(0, 4, 2, 1), sample(1, 8, 4, 2), inaccurate, long, failed(0, reason)]
    text = summary(run(*samples))
    assert max(map(len, text.splitlines())) <= 80
    lines = [line.split() for line in text.splitlines()]
    assert ["operator", "n", "eager", "inductor", "instrumented", "GB/s", "%", "peak"] in lines
    # Medians of 4, 8, 40 µs; of the speedups 2, 2, 2 and 4, 4, 4; of 8, 4, 0.8 GB/s.
    assert ["add.Tensor", "3", "8", "us", "2.00x", "4.00x", "4", "40"] in lines
    assert "not measured (1 operator):" in text
    assert "  aten.view.default: a view: it moves no data" in text
    assert "failed (2 of 5 samples):" in text
    assert "inductor is inaccurate: largest difference 3" in text
    assert "Time of instrumented over inductor: median 0.500" in " ".join(text.split())


def test_what_a_cuda_graph_makes_slower_is_said() -> None:
    slower = [sample(number, 40, 20, 10) for number in range(7)]
    for one in slower:
        one.backends["eager"].outside_graph_us = 32.0
    found = " ".join(summary(run(*slower)).split())
    assert "as copies are: add.Tensor sample 0: eager 40 us, outside 32 us; " in found
    assert "sample 4: eager 40 us, outside 32 us; 2 more in the files." in found
    assert "CUDA graph" not in summary(run(sample(0, 40, 20, 10)))


def test_a_block_for_each_operator() -> None:
    (result,) = by_operator([sample(0, 4, 2, 1)])
    assert operator_block(result, BACKENDS).splitlines() == [
        "aten.add.Tensor: 1 of 1 sample timed",
        "Inductor Speedups : [2.0000, 2.0000, 2.0000]",
        "Instrumented Speedups : [4.0000, 4.0000, 4.0000]",
    ]
    (result,) = by_operator([failed(0, "no answer"), failed(1, "x")])
    assert operator_block(result, BACKENDS).splitlines() == [
        "aten.mm.default: 0 of 2 samples timed",
        "  sample 0: no answer",
        "  sample 1: x",
    ]
