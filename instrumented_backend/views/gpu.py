"""Where the time of each GPU went, in a line."""

from instrumented_backend.records.gpu import GpuRow, GpuSection
from instrumented_backend.units import whole_percent
from instrumented_backend.views.advice import LARGE_SPREAD_POINTS

MAX_GPUS = 8
WORTH_NAMING_PCT = 1.0


def gpu_lines(gpu: GpuSection) -> list[str]:
    """``GPU: compiled code 60 %, eager 40 % · launch-bound``, for each of them."""
    if not gpu.gpus and gpu.note:
        return [f"GPU: where its time went is unknown: {gpu.note}"]
    return [
        f"GPU{f' {row.device}' if len(gpu.gpus) > 1 else ''}: {_gpu_words(row)}"
        for row in gpu.gpus[:MAX_GPUS]
    ]


def _gpu_words(gpu: GpuRow) -> str:
    shares = [("compiled code", gpu.captured_pct), ("eager", gpu.eager_pct)]
    if (gpu.idle_pct or 0.0) >= WORTH_NAMING_PCT:
        shares.append(("idle", gpu.idle_pct))
    words = ", ".join(f"{name} {whole_percent(share or 0.0)}" for name, share in shares)
    if gpu.verdict is not None:
        words += f" · {gpu.verdict}"
    if gpu.spread_pct > LARGE_SPREAD_POINTS:
        words += f" · sampled, ± {gpu.spread_pct:.0f} points; INSTRUMENTED_OPS=always sees more"
    return words
