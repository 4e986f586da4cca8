"""Events as PyTorch's profiler writes them, to make traces whose figures can be computed by hand.

Times are µs. Rows of digits in the tests show a GPU's or a stream's time, one character for 10 µs.
"""

import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]

GEMM = "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT"
ATTENTION = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4> >(...)"
POINTWISE = "triton_poi_fused_add_0"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def event(cat: str, name: str, ts: float, dur: float, **more: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 100, "tid": 1, **more}


def kernel(
    ts: float,
    dur: float,
    name: str = POINTWISE,
    *,
    device: int = 0,
    stream: int = 7,
    correlation: int | None = None,
    cat: str = "kernel",
) -> Event:
    args: Event = {"device": device, "stream": stream}
    if correlation is not None:
        args["correlation"] = correlation
    return event(cat, name, ts, dur, pid=device, tid=stream, args=args)


def copy(ts: float, dur: float, **more: Any) -> Event:
    return kernel(ts, dur, "Memcpy HtoD (Pinned -> Device)", cat="gpu_memcpy", **more)


def launch(ts: float, dur: float, correlation: int, **more: Any) -> Event:
    args = {"cbid": 211, "correlation": correlation}
    return event("cuda_runtime", "cudaLaunchKernel", ts, dur, args=args, **more)


def op(ts: float, dur: float, name: str = "aten::add", **more: Any) -> Event:
    return event("cpu_op", name, ts, dur, **more)


def annotation(ts: float, dur: float, name: str, **more: Any) -> Event:
    return event("user_annotation", name, ts, dur, **more)


def write(path: Path, events: list[Any], **fields: Any) -> Path:
    """A trace file with some of the profiler's own fields."""
    document = {"schemaVersion": 1, "displayTimeUnit": "ms", **fields, "traceEvents": events}
    path.write_text(json.dumps(document))
    return path
