"""What was measured, as plain data: one record a sample. Nothing here imports torch.

Files: ``*.jsonl`` grows by a line a sample while the benchmark runs, so that a stopped run can go
on; JSON, CSV and the timings file are written at the end from the same records.
"""

import csv
import io
import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from instrumented_backend.records.whole_file import write_whole

SCHEMA_VERSION = 1
QUANTILES = (0.2, 0.5, 0.8)
OK, FAILED, SKIPPED = "ok", "failed", "skipped"


class ResultsError(ValueError):
    """A file of an earlier run can't be gone on with; the message is one line."""


@dataclass
class Timing:
    """One backend's time for one call. The spread is the quartiles of all that was timed.

    It is None where a call was so slow that it was timed once.
    """

    median_us: float
    low_us: float | None
    high_us: float | None
    speedup: float | None = None  # over the first backend
    gb_per_s: float | None = None
    gflop_per_s: float | None = None
    pct_of_peak: float | None = None  # of the limit that is nearer
    outside_graph_us: float | None = None  # the median, where a CUDA graph makes it over 5 % slower


@dataclass
class Kernel:
    """A kernel, or an extern call, that the operator compiled to; from the backend's report."""

    kernel_name: str
    language: str
    kernel_category: str
    calls: int | None
    total_bytes: int | None
    flops: int | None


@dataclass
class Sample:
    """One operator with one set of inputs."""

    operator: str
    sample: int  # its place among the operator's inputs, most frequent first
    inputs: str
    count: int  # calls in the models that were logged
    status: str = OK
    reason: str | None = None  # of a failure, or of what was skipped
    backends: dict[str, Timing] = field(default_factory=dict)
    total_bytes: int | None = None  # read and written by one call
    bytes_source: str | None = None  # "kernels": our report; "arguments": each in- and output once
    flops: int | None = None
    compute_dtype: str | None = None  # short name
    limit: str | None = None  # which peak pct_of_peak is of: "bandwidth" or "compute"
    accuracy: dict[str, str] = field(default_factory=dict)  # backend → "ok", or what differs
    kernels: list[Kernel] | None = None  # None: unknown, a note says why
    notes: list[str] = field(default_factory=list)
    seconds: float | None = None  # for all of it, compilations included

    @property
    def inaccurate(self) -> dict[str, str]:
        return {name: what for name, what in self.accuracy.items() if not what.startswith("ok")}

    @property
    def complaint(self) -> str | None:
        """Why the sample counts against the run; None where it was measured and is right."""
        if self.status != OK:
            return self.reason
        wrong = [f"{name} is inaccurate: {what}" for name, what in self.inaccurate.items()]
        return "; ".join(wrong) or None


def sample_from(data: dict[str, Any]) -> Sample:
    """A record from its JSON form."""
    backends = {name: Timing(**timing) for name, timing in data["backends"].items()}
    kernels = data["kernels"] and [Kernel(**kernel) for kernel in data["kernels"]]
    return Sample(**{**data, "backends": backends, "kernels": kernels})


@dataclass
class Peak:
    """What the machine reached in this run: a large copy, a large matrix product."""

    gb_per_s: float
    gflop_per_s: float | None
    compute_dtype: str | None


def add_shares(sample: Sample, peak: Peak) -> None:
    """Fill in the speedups, and the figures that follow from times, bytes and operations."""
    reference = next(iter(sample.backends.values()), None)
    for timing in sample.backends.values():
        if reference is not None:
            timing.speedup = reference.median_us / timing.median_us
        shares = {}
        if sample.total_bytes is not None:
            timing.gb_per_s = sample.total_bytes / timing.median_us / 1e3
            shares["bandwidth"] = timing.gb_per_s / peak.gb_per_s
        if sample.flops is not None:
            timing.gflop_per_s = sample.flops / timing.median_us / 1e3
            if peak.gflop_per_s and sample.compute_dtype == peak.compute_dtype:
                shares["compute"] = timing.gflop_per_s / peak.gflop_per_s
        if shares:
            sample.limit = max(shares, key=lambda name: shares[name])
            timing.pct_of_peak = 100 * shares[sample.limit]


def quantiles(values: list[float]) -> list[float]:
    """The `QUANTILES`, interpolated between neighbours as numpy does; one value is all of them."""
    ordered = sorted(values)
    found = []
    for share in QUANTILES:
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        found.append(ordered[low] + (place - low) * (ordered[high] - ordered[low]))
    return found


@dataclass
class OperatorResult:
    """All samples of one operator."""

    operator: str
    samples: list[Sample]

    @property
    def timed(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.status == OK]

    def speedups(self, backend: str) -> list[float] | None:
        """Quantiles over the samples; None where no sample was timed."""
        values = [
            timing.speedup
            for sample in self.timed
            if (timing := sample.backends.get(backend)) and timing.speedup is not None
        ]
        return quantiles(values) if values else None


def by_operator(samples: Iterable[Sample]) -> list[OperatorResult]:
    found: dict[str, OperatorResult] = {}
    for sample in samples:
        found.setdefault(sample.operator, OperatorResult(sample.operator, [])).samples.append(
            sample
        )
    return list(found.values())


def ratios(samples: Iterable[Sample], of: str, to: str) -> list[float]:
    """Times of one backend over those of another, sample by sample."""
    return [
        sample.backends[of].median_us / sample.backends[to].median_us
        for sample in samples
        if of in sample.backends and to in sample.backends
    ]


# --- Files --------------------------------------------------------------------------------------


@dataclass
class Run:
    """A whole run: what was asked for, on what machine, and every sample."""

    settings: dict[str, Any]
    machine: dict[str, Any]
    skipped_operators: dict[str, str]
    samples: list[Sample]
    notes: list[str] = field(default_factory=list)


class Journal:
    """The file that grows by a line a sample, headed by the settings that the lines hold for."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path = path
        self._settings = settings

    def start(self) -> None:
        """Begin a new file, whatever there was."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, json.dumps({"settings": self._settings}) + "\n")

    def resume(self) -> list[Sample]:
        """What an earlier run has done; raises `ResultsError` where it was another run."""
        if not self.path.exists():
            self.start()
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        try:
            before = json.loads(lines[0])["settings"]
        except (IndexError, ValueError, KeyError, TypeError):
            raise ResultsError(f"{self.path}: not from an earlier run; remove it") from None
        for name, value in self._settings.items():
            if before.get(name) != value:
                raise ResultsError(
                    f"{self.path}: the earlier run had {name} {before.get(name)!r}, "
                    f"this one has {value!r}; run without --resume to start afresh"
                )
        samples = []
        kept = [lines[0]]
        for number, line in enumerate(lines[1:], 2):
            if not line.endswith("\n"):
                continue  # cut short when the run was stopped
            try:
                samples.append(sample_from(json.loads(line)))
            except (ValueError, TypeError, KeyError) as error:
                raise ResultsError(f"{self.path}:{number}: damaged: {error}") from None
            kept.append(line)
        write_whole(self.path, "".join(kept))
        return samples

    def append(self, sample: Sample) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(sample)) + "\n")


def to_json(run: Run) -> str:
    """One line a sample."""
    head = {
        "schema_version": SCHEMA_VERSION,
        "settings": run.settings,
        "machine": run.machine,
        "skipped_operators": run.skipped_operators,
        "notes": run.notes,
    }
    parts = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    samples = ",\n  ".join(json.dumps(asdict(sample)) for sample in run.samples)
    parts.append(f' "samples": [\n  {samples}\n ]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def to_csv(run: Run) -> str:
    """One row a sample; times of each backend side by side, kernels by name."""
    columns = ["operator", "sample", "inputs", "count", "status", "reason"]
    after = ["total_bytes", "bytes_source", "flops", "compute_dtype", "limit"]
    backends = run.settings["backends"]
    file = io.StringIO()
    timing_fields = list(Timing.__dataclass_fields__)
    header = [
        *columns,
        *(f"{backend}_{name}" for backend in backends for name in timing_fields),
        *after,
        *("accuracy", "kernels", "notes", "seconds"),
    ]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    for sample in run.samples:
        timings = []
        for backend in backends:
            timing = sample.backends.get(backend)
            timings += [getattr(timing, name, None) for name in timing_fields]
        kernels = None if sample.kernels is None else " ".join(_uses(sample.kernels))
        writer.writerow(
            [
                *(getattr(sample, name) for name in columns),
                *timings,
                *(getattr(sample, name) for name in after),
                "; ".join(f"{name}: {what}" for name, what in sample.accuracy.items()),
                kernels,
                "; ".join(sample.notes),
                sample.seconds,
            ]
        )
    return file.getvalue()


def _uses(kernels: list[Kernel]) -> Iterable[str]:
    for kernel in kernels:
        yield kernel.kernel_name + ("" if kernel.calls in (1, None) else f"*{kernel.calls}")


def speedup_text(backend: str, values: list[float]) -> str:
    """``Inductor Speedups : [0.9812, 1.0213, 1.2001]``."""
    return f"{backend.capitalize()} Speedups : [{', '.join(f'{value:.4f}' for value in values)}]"


def timings_text(run: Run) -> str:
    """A line for each operator that was timed."""
    lines = []
    for result in by_operator(run.samples):
        parts = [
            speedup_text(backend, values)
            for backend in run.settings["backends"][1:]
            if (values := result.speedups(backend))
        ]
        if parts:
            lines.append(f"{result.operator}: {', '.join(parts)}")
    return "".join(line + "\n" for line in lines)


def median(values: list[float]) -> float:
    return statistics.median(values)
