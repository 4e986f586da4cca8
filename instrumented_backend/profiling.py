"""Profiles and traces of compiled programs. Importing it imports no torch."""

from instrumented_backend.dropins.benchmark_utils import (
    benchmark_utilization,
    compute_utilization,
    dump_chrome_trace,
    get_chrome_trace_events,
    get_duration,
    get_sorted_gpu_events,
    get_sorted_gpu_mm_conv_events,
    is_gpu_compute_event,
)
from instrumented_backend.dropins.dynamo_profiler import (
    ProfileMetrics,
    Profiler,
    ProfileResult,
    fx_insert_profiling,
    print_missing,
    should_print_missing,
)
from instrumented_backend.traces.event_stream import TraceError
from instrumented_backend.traces.time_range import TimeRange
from instrumented_backend.traces.trace_file import read_trace
from instrumented_backend.traces.utilization import time_of

__all__ = [
    "ProfileMetrics",
    "ProfileResult",
    "Profiler",
    "TimeRange",
    "TraceError",
    "benchmark_utilization",
    "compute_utilization",
    "dump_chrome_trace",
    "fx_insert_profiling",
    "get_chrome_trace_events",
    "get_duration",
    "get_sorted_gpu_events",
    "get_sorted_gpu_mm_conv_events",
    "is_gpu_compute_event",
    "print_missing",
    "read_trace",
    "should_print_missing",
    "time_of",
]
