"""GPU utilisation from Chrome traces. Importing it imports no torch."""

from instrumented_backend.profiling.benchmark_utils import (
    benchmark_utilization,
    compute_utilization,
    dump_chrome_trace,
    get_chrome_trace_events,
    get_duration,
    get_sorted_gpu_events,
    get_sorted_gpu_mm_conv_events,
    is_gpu_compute_event,
)
from instrumented_backend.profiling.event_stream import TraceError

__all__ = [
    "TraceError",
    "benchmark_utilization",
    "compute_utilization",
    "dump_chrome_trace",
    "get_chrome_trace_events",
    "get_duration",
    "get_sorted_gpu_events",
    "get_sorted_gpu_mm_conv_events",
    "is_gpu_compute_event",
]
