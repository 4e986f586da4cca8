"""What the command ``bench`` prints."""

import dataclasses

from instrumented_backend.records import notes
from instrumented_backend.records.bench import (
    BenchRecord,
    BenchRun,
    GraphBench,
    Peak,
)
from instrumented_backend.records.fields import field_values
from instrumented_backend.units import figure, percent
from instrumented_backend.views.output import TableRow, to_json
from instrumented_backend.views.tables import Table, kernel_row
from instrumented_backend.views.text import render_rows
from instrumented_backend.views.words import wrap

# Notes of single kernels in the files; the terminal has a column, and a line for all of them.
_SAID_ELSEWHERE = frozenset({notes.UNSTEADY, notes.TIMED_WARM})


_TABLE = Table(
    "bench",
    "Kernels (ms: median of one launch; ±: quartiles; moved: by one launch)",
    lambda report: [],
    least=("spills", "regs", "GFLOP/s", "warm ms", "category", "cold ms", "± %"),
)


@dataclasses.dataclass
class BenchView:
    """The kernels; in JSON also peaks, graphs and what was left out, as one object."""

    run: BenchRun

    def text(self, width: int) -> str:
        run = self.run
        rows = [_short(record) for record in run.kernels]
        above = [line for peak in run.peaks.values() for line in _peak_lines(peak)]
        below = [line for graph in run.graphs for line in _graph_lines(graph)]
        below += [line for record in run.kernels for line in _error_lines(record)]
        below += _note_lines(run.kernels)
        parts = [part for line in above for part in wrap(line, width)]
        parts.append(render_rows(_TABLE, rows, width, max_rows=len(rows)))
        parts += [part for line in below for part in wrap(line, width)]
        return "\n".join(part for part in parts if part)

    def rows(self) -> list[TableRow]:
        return [bench_row(record) for record in self.run.kernels]

    def json(self) -> str:
        return to_json(_document(self.run))


def _short(record: BenchRecord) -> TableRow:
    """What a terminal has room for."""
    kernel, timing = record.kernel, record.timing
    config = record.config if not record.chosen else None
    return {
        "kernel": kernel.kernel_name if config is None else f"{kernel.kernel_name} @ {config}",
        "category": kernel.kernel_category,
        "calls": kernel.calls,
        "ms": figure(timing.ms if timing else None, 4),
        "± %": figure(timing.spread_pct if timing else None, 2),
        "warm ms": figure(record.warm.ms if record.warm else None, 4),
        "cold ms": figure(record.cold.ms if record.cold else None, 4),
        "moved_gb": kernel.moved_gb,
        "GB/s": figure(record.gb_per_s, 4),
        "% of peak": figure(record.peak_pct, 3),
        "GFLOP/s": figure(record.gflop_per_s, 4),
        "regs": record.n_regs,
        "spills": record.n_spills,
    }


def bench_row(record: BenchRecord) -> TableRow:
    """All of a record, with what is asked for first in front."""
    kernel, timing, peak = record.kernel, record.timing, record.peak
    row: TableRow = {
        "kernel_name": kernel.kernel_name,
        "kernel_category": kernel.kernel_category,
        "calls": kernel.calls,
        "ms": None if timing is None else timing.ms,
        "spread_pct": None if timing is None else timing.spread_pct,
        "gb": kernel.moved_gb,
        "gb_per_s": record.gb_per_s,
        "peak_pct": record.peak_pct,
        "gflop_per_s": record.gflop_per_s,
        "error": record.error,
        "ms_min": None if timing is None else timing.min_ms,
        "ms_p25": None if timing is None else timing.p25_ms,
        "ms_p75": None if timing is None else timing.p75_ms,
        "samples": None if timing is None else timing.samples,
        "timed": record.timed,
        "warm_ms": None if record.warm is None else record.warm.ms,
        "cold_ms": None if record.cold is None else record.cold.ms,
        "peak_gb_per_s": peak.gb_per_s if peak else None,
        "peak_source": peak.source if peak else None,
        "copy_gb_per_s": peak.copy_gb_per_s if peak else None,
        "copy_pct": record.copy_pct,
        "n_regs": record.n_regs,
        "n_spills": record.n_spills,
        "shared_bytes": record.shared_bytes,
        "config": record.config,
        "chosen": record.chosen,
    }
    fields = {name: value for name, value in kernel_row(kernel).items() if name not in _OF_A_RUN}
    fields = {name: value for name, value in fields.items() if name not in row}
    return {**row, **fields, "notes": "; ".join([*record.notes, *kernel.notes]) or None}


_OF_A_RUN = (
    *("moved_gb", "device_calls", "device_time_us", "device_time_total_us"),
    *("extern_positions", "library_kernels"),
)


def _peak_lines(peak: Peak) -> list[str]:
    line = f"{peak.device_name}: copies {peak.copy_gb_per_s:.4g} GB/s (measured)"
    if peak.datasheet_gb_per_s is not None:
        line += f", datasheet {peak.datasheet_gb_per_s:.4g} GB/s ({peak.datasheet_source})"
    line += f"; shares of peak are of the {peak.source}"
    if peak.device != "cuda":
        return [line]
    return [
        line,
        "ms: in calls of the whole graph, by the GPU's clock, without the launch; "
        "warm ms, cold ms: launched alone, again and again, and with an empty L2 cache",
    ]


def _graph_lines(graph: GraphBench) -> list[str]:
    lines = []
    if graph.call is not None:
        line = f"{graph.path}: the compiled call takes {graph.call.ms:.4g} ms"
        if graph.kernels_ms is not None:
            share = percent(graph.kernels_pct)
            line += f", its kernels and externs {graph.kernels_ms:.4g} ms ({share})"
        lines.append(line)
    if graph.error is not None:
        lines.append(f"{graph.path}: {graph.error}")
    return lines


def _error_lines(record: BenchRecord) -> list[str]:
    if record.error is None:
        return []
    config = "" if record.config is None else f" @ {record.config}"
    return [f"not timed: {record.kernel.kernel_name}{config}: {record.error}"]


def _note_lines(records: list[BenchRecord]) -> list[str]:
    """The notes about the figures, each once with the kernels that it is about."""
    lines = []
    for record in records:
        for note in record.coded_notes():
            if note.code not in _SAID_ELSEWHERE:
                lines.append(f"{record.kernel.kernel_name}: {note.text}")
    return list(dict.fromkeys(lines))


def _document(run: BenchRun) -> dict[str, object]:
    return {
        "schema_version": 1,
        "interrupted": run.interrupted,
        "peaks": [
            {**dataclasses.asdict(peak), "compared_with": peak.source}
            for peak in run.peaks.values()
        ],
        "graphs": [dataclasses.asdict(graph) for graph in run.graphs],
        "kernels": [
            {
                **{
                    name: value for name, value in bench_row(record).items() if name != "graph_path"
                },
                **{
                    name: value
                    for name, value in field_values(record.kernel).items()
                    if name not in (*_OF_A_RUN, "gb_per_s", "peak_pct")
                },
                "notes": [*record.notes, *record.kernel.notes],
                "note_codes": [*record.note_codes, *record.kernel.note_codes],
            }
            for record in run.kernels
        ],
        "left_out": run.left_out,
    }
