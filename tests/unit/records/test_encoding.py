"""The report's file while the program runs is the one at its end, but for spaces."""

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
from sample_report import sample

from instrumented_backend.records import Report
from instrumented_backend.records.encoding import encoded


def of_pieces(report: Report) -> str:
    return b"".join(report.encoded({})).decode()


@pytest.mark.parametrize("graphs", [0, 1, 99, 100, 101, 250])
@pytest.mark.parametrize("recorded", [0, 1], ids=["no CUDA graphs", "CUDA graphs"])
def test_the_same_in_pieces(graphs: int, recorded: int) -> None:
    report = sample()
    report.graphs = (report.graphs * 250)[:graphs]
    report.compile.compilations = (report.compile.compilations * 250)[:graphs]
    report.compile.cudagraphs.recorded = recorded
    assert json.loads(of_pieces(report)) == json.loads(report.to_json())
    assert Report.from_json(of_pieces(report)) == Report.from_json(report.to_json())


@pytest.mark.parametrize(
    "name", ["line\u2028end", "next\x85", "new\nline", 'a "quote"', "\udce9.py"]
)
def test_names_in_pieces(name: str) -> None:
    """The last one is a byte that is no UTF-8: only the items beside it are slower for it."""
    report = sample()
    report.graphs.append(dataclasses.replace(report.graphs[0], function=name))
    report.run.command = name
    read = Report.from_json(of_pieces(report))
    assert read.graphs[1].function == read.run.command == name
    assert read == Report.from_json(report.to_json())


def test_what_is_not_finite_is_null_in_pieces() -> None:
    report = sample()
    report.graphs[0].longest_call_us = math.inf
    assert json.loads(of_pieces(report))["graphs"][0]["longest_call_us"] is None


def test_figures_of_numpys_kinds_are_numbers() -> None:
    """One of them costs no report."""
    report = sample()
    report.compile.total_s, report.graphs[0].calls = np.float64(1.5), np.int64(7)
    for text in (report.to_json(), b"".join(encoded(report, {})).decode()):
        read = Report.from_json(text)
        assert (read.compile.total_s, read.graphs[0].calls) == (1.5, 7)


def test_a_list_that_is_the_last_one_is_not_encoded_again() -> None:
    """One that is equal is; nor is a long text kept."""
    report, known = sample(), dict[str, tuple[list[Any], bytes]]()
    first = b"".join(report.encoded(known))
    assert known["kernels"][0] is report.kernels
    known["kernels"] = report.kernels, b"[]"
    assert Report.from_json(b"".join(report.encoded(known)).decode()).kernels == []
    report.kernels = list(report.kernels)
    assert b"".join(report.encoded(known)) == first
    report.kernels = report.kernels * 5000
    assert Report.from_json(b"".join(report.encoded(known)).decode()).kernels == report.kernels
    assert "kernels" not in known


def test_a_list_that_was_not_written_to_its_end_is_encoded_again() -> None:
    report, known = sample(), dict[str, tuple[list[Any], bytes]]()
    pieces = report.encoded(known)
    while b'"kernels"' not in next(pieces):
        pass
    pieces.close()
    assert "kernels" not in known
    assert Report.from_json(b"".join(report.encoded(known)).decode()).kernels == report.kernels
