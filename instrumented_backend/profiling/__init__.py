"""Profiles and traces of compiled programs. Importing it imports no torch."""

from instrumented_backend.profiling.dynamo_profiler import (
    ProfileMetrics,
    Profiler,
    ProfileResult,
    fx_insert_profiling,
    print_missing,
    should_print_missing,
)

__all__ = [
    "ProfileMetrics",
    "ProfileResult",
    "Profiler",
    "fx_insert_profiling",
    "print_missing",
    "should_print_missing",
]
