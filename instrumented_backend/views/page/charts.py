"""Bars: parts of a whole, as what the page's SVG draws."""

from collections.abc import Sequence
from dataclasses import dataclass

from instrumented_backend.records import DeviceRecord, GpuSection, LedgerSection
from instrumented_backend.units import duration, percent, seconds
from instrumented_backend.views.meanings import ledger_words

WIDTH = 1000.0  # of a whole bar, in the SVG's own units


@dataclass
class Part:
    """``kind`` decides the colour; ``x`` and ``width`` are in the SVG's units."""

    kind: str
    label: str
    said: str  # the figure
    x: float
    width: float
    value: float


@dataclass
class Bar:
    """Parts side by side; ``text`` says the same to those who cannot see it."""

    label: str
    parts: list[Part]
    said: str = ""
    link: str | None = None

    @property
    def text(self) -> str:
        return ", ".join(f"{part.label} {part.said}" for part in self.parts)


def bar(
    label: str, values: Sequence[tuple[str, str, str, float]], whole: float, said: str = ""
) -> Bar:
    """``values``: kind, label, figure and size of each; ``whole``: the size of a full bar."""
    parts, x = [], 0.0
    for kind, name, figure, value in values:
        width = WIDTH * value / whole if whole else 0.0
        parts.append(Part(kind, name, figure, round(x, 2), round(width, 2), value))
        x += width
    return Bar(label, parts, said)


def ledger_bar(ledger: LedgerSection) -> Bar | None:
    """Where the wall time of the main thread went."""
    known = [(row, row.seconds) for row in ledger.rows if row.threads == "main" and row.seconds]
    wall_s = ledger.wall_s or sum(spent for _, spent in known)
    if not known:
        return None
    values = [
        (
            row.row,
            ledger_words(row.row),
            f"{seconds(spent)} ({percent(100 * spent / wall_s)})"
            + (f" ± {seconds(row.spread_s)}" if row.spread_s else ""),
            spent,
        )
        for row, spent in known
    ]
    return bar("Wall time of the main thread", values, wall_s, seconds(wall_s))


def gpu_bars(gpu: GpuSection) -> list[Bar]:
    """The timeline of each GPU."""
    bars = []
    for row in gpu.gpus:
        timeline_s = gpu.timeline_s or 0.0
        values = [
            (kind, label, f"{seconds(spent)} ({percent(share)})", spent)
            for kind, label, spent, share in (
                ("captured", "compiled code", row.captured_s, row.captured_pct),
                ("eager_ops", "eager", row.eager_s, row.eager_pct),
                ("python", "idle", row.idle_s, row.idle_pct),
            )
            if spent
        ]
        said = seconds(timeline_s) + (f", {row.verdict}" if row.verdict else "")
        bars.append(bar(f"GPU {row.device}", values, timeline_s, said))
    return bars


def device_bar(device: DeviceRecord | None) -> Bar | None:
    """Kernel time on the GPUs, as the windows saw it."""
    if device is None or not device.kernel_us:
        return None
    eager_us = max(0.0, device.kernel_us - device.captured_us)
    values = [
        (kind, label, f"{duration(us)} ({percent(100 * us / device.kernel_us)})", us)
        for kind, label, us in (
            ("captured", "compiled code", device.captured_us),
            ("eager_ops", "eager ops", eager_us),
        )
        if us
    ]
    return bar("Kernel time on the GPU, sampled", values, device.kernel_us)
