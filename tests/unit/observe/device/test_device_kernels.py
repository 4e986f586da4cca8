"""Measured times joined to kernels' records by name."""

from instrumented_backend.observe.device.kernels import add_times
from instrumented_backend.records import (
    DeviceKernelRecord,
    DeviceRecord,
    GraphRecord,
    KernelRecord,
)


def seen(
    kernel: str, captured_count: int, captured_us: float, device: int = 0
) -> DeviceKernelRecord:
    # As many launches again were made outside regions, and took twice as long.
    return DeviceKernelRecord(
        kernel, device, 2 * captured_count, 3 * captured_us, 0.0, captured_count, captured_us
    )


def on_device(*kernels: DeviceKernelRecord) -> DeviceRecord:
    return DeviceRecord("sampled", 1, 1.0, 0, 0, 0, 0, 0, list(kernels), None)


def test_times_of_a_launch_and_of_the_run() -> None:
    forward = KernelRecord("k_fwd", "triton", 0, "forward", calls=2, total_bytes=6_000_000)
    backward = KernelRecord("k_bwd", "triton", 0, "backward", calls=1)
    unseen = KernelRecord("k_unseen", "triton", 0, "forward", calls=1)
    add_times(
        [forward, backward, unseen],
        on_device(
            seen("k_fwd", 10, 30.0), seen("k_fwd", 10, 10.0, device=1), seen("k_bwd", 5, 20.0)
        ),
        {0: GraphRecord(graph=0, calls=100, backward_calls=50)},
    )
    assert forward.notes == ["time: the mean of 20 launches, in windows"]
    # 40 µs for 20 launches; 100 calls of the graph launch it twice each; 6 MB in 2 µs.
    assert (forward.device_time_us, forward.device_calls) == (2.0, 200)
    assert (forward.device_time_total_us, forward.gb_per_s) == (400.0, 3000.0)
    # 20 µs for 5 launches, once in each of 50 backward calls; bytes unknown.
    assert (backward.device_time_us, backward.device_time_total_us, backward.gb_per_s) == (
        4.0,
        200.0,
        None,
    )
    assert (unseen.device_time_us, unseen.device_calls, unseen.notes) == (None, None, [])


def test_a_name_in_two_modules_says_so() -> None:
    kernels = [KernelRecord("k", "triton", graph, "forward", calls=1) for graph in (0, 1)]
    add_times(kernels, on_device(seen("k", 4, 8.0)), {})
    assert [kernel.device_time_us for kernel in kernels] == [2.0, 2.0]
    assert all("of all modules" in kernel.notes[1] for kernel in kernels)
    assert [kernel.device_time_total_us for kernel in kernels] == [None, None], "calls unknown"


def test_launches_outside_regions_are_not_the_graphs() -> None:
    kernel = KernelRecord("k", "triton", 0, "forward", calls=1)
    add_times([kernel], on_device(DeviceKernelRecord("k", 0, 3, 9.0, 100.0, 0, 0.0)), {})
    assert kernel.device_time_us is None
