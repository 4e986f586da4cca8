"""What Inductor's autotuner knows of a Triton kernel: its configurations, registers, memory."""

import copy
import functools
from collections.abc import Callable
from typing import Any

from instrumented_backend.bench.timing import measure_kernel
from instrumented_backend.records.bench import BenchRecord


def is_autotuner(kernel: Any) -> bool:
    """Is it a Triton kernel as Inductor wraps it (``CachingAutotuner``)?"""
    return hasattr(kernel, "launchers") and hasattr(kernel, "precompile")


def describe_chosen(
    record: BenchRecord, configs: list[BenchRecord], kernel: Any
) -> list[BenchRecord]:
    """Say which configuration was launched; returns the records of all of them."""
    launchers = getattr(kernel, "launchers", None)
    if not launchers:
        return [record]
    _describe(record, launchers[0])
    for other in configs:
        other.chosen = other.config == record.config
    return configs if any(other.chosen for other in configs) else [record, *configs]


def _describe(record: BenchRecord, launcher: Any) -> None:
    record.config = str(launcher.config)
    record.n_regs = getattr(launcher, "n_regs", None)
    record.n_spills = getattr(launcher, "n_spills", None)
    record.shared_bytes = getattr(launcher, "shared", None)


def config_records(
    like: BenchRecord,
    kernel: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    device: str,
    restore: Callable[[], None] | None,
    min_seconds: float,
) -> list[BenchRecord]:
    """A record for each configuration that the autotuner would try, timed; none for other kernels.

    To be called before the kernel is first launched, when the autotuner drops all but one.
    """
    if not is_autotuner(kernel):
        return []
    if not kernel.launchers:
        kernel.precompile()
    records = []
    for launcher in list(kernel.launchers):
        record = BenchRecord(copy.deepcopy(like.kernel), chosen=False)
        _describe(record, launcher)
        try:
            launch = functools.partial(launcher, *args, **kwargs)
            measure_kernel(record, launch, device, restore, min_seconds)
        except RuntimeError as error:  # a configuration that the device has no room for
            record.error = str(error).partition("\n")[0]
        records.append(record)
    return records
