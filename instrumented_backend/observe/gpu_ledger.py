"""The GPU ledger: where the time of each GPU went, from the first `torch.compile` to the end."""

from collections.abc import Sequence

from instrumented_backend.observe.native.keys import region_key
from instrumented_backend.observe.ops.estimate import Estimate
from instrumented_backend.observe.ops.gpu_seen import BEHIND
from instrumented_backend.observe.ops.gpu_time import GpuEstimate, gpu_estimates
from instrumented_backend.observe.ops.observed import Observed
from instrumented_backend.observe.ops.scaled import LONG
from instrumented_backend.records import (
    GPU_BOUND,
    LAUNCH_BOUND,
    STREAM_BOUND,
    GpuRow,
    GpuSection,
    GraphRecord,
    notes,
)
from instrumented_backend.torch_compat import machine

# What its work takes a GPU that is behind, to the host's time for asking: with less it would catch
# up, if it did not wait for something else.
WORKING = 0.8
WAITING = 0.1  # of a long gap's time in ops: with less the program waits for something else


def gpu_ledger(
    observed: Observed | None, found: Estimate | None, graphs: Sequence[GraphRecord]
) -> GpuSection:
    """The graphs' records get their time on the GPU."""
    if observed is not None and observed.gpu.problem is not None:
        return GpuSection(note=observed.gpu.problem, note_code=notes.GPU_UNKNOWN)
    if observed is None or found is None or not _has_calls(observed):
        return GpuSection()
    apart_ns = observed.times.main_compile_ns + observed.before.waited_ns
    timeline_ns = float(max(0, observed.elapsed_ns - apart_ns))
    estimates = gpu_estimates(observed.gpu, observed.regions)
    section = GpuSection(timeline_s=1e-9 * timeline_ns)
    if observed.gpu.error:
        section.note = f"CUDA's error {observed.gpu.error} ended the observation of GPUs"
    elif not estimates:
        section.note = "no window saw a call of a graph on a GPU"
    section.note_code = notes.GPU_UNKNOWN if section.note else None
    for gpu in estimates:
        for graph in graphs:
            forward = gpu.by_key.get(region_key(graph.graph, False))
            backward = gpu.by_key.get(region_key(graph.graph, True))
            graph.forward_gpu_us = None if forward is None else forward / 1e3
            graph.backward_gpu_us = None if backward is None else backward / 1e3
    if timeline_ns:
        section.gpus = [
            _row(gpu, timeline_ns, waiting_ns(observed, gpu.late_ns)) for gpu in estimates
        ]
    return section


def _has_calls(observed: Observed) -> bool:
    """Of graphs on a GPU, since the last reset."""
    regions = observed.regions
    return any(row.key in regions and regions[row.key].calls for row in observed.gpu.calls)


def waiting_ns(observed: Observed, late_ns: float) -> float:
    """Of the main thread's gaps: in DataLoaders, and in long ones with next to no ops.

    ``late_ns`` of each pass until a GPU that is behind the host has caught up.
    """
    total = 0.0
    for kind in observed.kinds:
        left_ns = max(0.0, kind.ns[0] - kind.n[0] * late_ns)
        if observed.marks[kind.mark].in_data:
            total += left_ns
        elif kind.octave >= LONG:
            parts = [part.seen for part in (*kind.wholes, *kind.slices)]
            seen_ns, op_ns = sum(seen.ns for seen in parts), sum(seen.op_ns for seen in parts)
            share = op_ns / seen_ns if seen_ns else 1.0
            total += left_ns * (1 - share) if share < WAITING else 0.0
    return total


def _verdict(gpu: GpuEstimate) -> str | None:
    if gpu.behind_share is None:
        return None
    if gpu.behind_share <= BEHIND:
        return LAUNCH_BOUND
    is_working = gpu.work_share is None or gpu.work_share >= WORKING
    return GPU_BOUND if is_working else STREAM_BOUND


def _row(gpu: GpuEstimate, timeline_ns: float, waited_ns: float) -> GpuRow:
    captured_ns = min(timeline_ns, gpu.captured_ns)
    left_ns = timeline_ns - captured_ns
    waited_ns = min(left_ns, waited_ns)
    idle_ns = waited_ns + gpu.idle_share * (left_ns - waited_ns)
    return GpuRow(
        device=gpu.device,
        name=machine.gpu_name(gpu.device),
        captured_s=1e-9 * captured_ns,
        eager_s=1e-9 * (left_ns - idle_ns),
        idle_s=1e-9 * idle_ns,
        captured_pct=100 * captured_ns / timeline_ns,
        eager_pct=100 * (left_ns - idle_ns) / timeline_ns,
        idle_pct=100 * idle_ns / timeline_ns,
        spread_pct=100 * min(1.0, gpu.spread_ns / timeline_ns),
        behind_pct=None if gpu.behind_share is None else 100 * gpu.behind_share,
        verdict=_verdict(gpu),
        observed_pct=100 * min(1.0, gpu.calls_seen / gpu.calls) if gpu.calls else 0.0,
        status="exact" if gpu.calls_seen >= gpu.calls else "sampled",
    )
