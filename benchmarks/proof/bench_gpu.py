"""The command ``bench`` on a GPU: against torch.profiler, ``do_bench`` by hand, a large copy."""

import statistics
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proof import child
from proof.figures import Figure, nearest

if TYPE_CHECKING:
    from instrumented_backend.records.bench import BenchRecord, BenchRun, Peak

GPT2 = "gpt2, 2 layers"
LAYERS, BATCH, LENGTH = 2, 8, 1024
WARM_UP, STEPS = 3, 20
SIDE = 1 << 26  # elements of the large kernel: 2 x 268 MB read, 268 MB written
# Milliseconds. Of a kernel that takes less, `do_bench` itself gives times up to 25 % apart, from
# call to call and from process to process: those are measured more often, and their range counts.
SHORT_MS, OFTEN = 0.02, 8
Times = dict[str, list[float]]  # milliseconds, by kernel name
Launches = dict[str, list[list[float]]]  # the same for each launch of a step


def kernels_on_gpu() -> list[Figure]:
    """The kernels of a GPT-2's training step, and one that moves 0.8 GB."""
    with tempfile.TemporaryDirectory() as cache:
        in_run: Times = child.call(trained, TORCHINDUCTOR_CACHE_DIR=cache)
        by_hand = [child.call(launches_by_hand, TORCHINDUCTOR_CACHE_DIR=cache) for _ in range(2)]
        run = _benched(cache)
    rows = [
        *as_in_the_run(run.kernels, run.peaks["cuda"], in_run),
        *as_by_hand(run.kernels, in_run, *by_hand),
    ]
    with tempfile.TemporaryDirectory() as cache:
        ms = child.call(large_by_hand, TORCHINDUCTOR_CACHE_DIR=cache)
        run = _benched(cache, profile=True)
    return rows + _of_the_large_kernel(run, ms)


def _benched(cache: str, **options: Any) -> "BenchRun":
    from instrumented_backend.bench.driver import Options, bench
    from instrumented_backend.bench.targets import find_targets

    return bench(find_targets([Path(cache)]).modules, Options(**options))


# --- GPT-2 --------------------------------------------------------------------------------------


def _training() -> Callable[[], None]:
    """A step with plain Inductor."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_layer=LAYERS, use_cache=False)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    model = GPT2LMHeadModel(config).cuda().train()
    tokens = torch.randint(0, config.vocab_size, (BATCH, LENGTH), device="cuda")
    compiled = torch.compile(model, backend="inductor")
    return lambda: compiled(input_ids=tokens, labels=tokens).loss.backward()


def trained() -> Times:
    """Each Triton kernel's times in a trace of some steps."""
    import torch

    step = _training()
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    with torch.profiler.profile() as profile:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    times: Times = defaultdict(list)
    on_gpu = torch.autograd.DeviceType.CUDA
    for event in profile.events():
        if event.device_type == on_gpu and event.name.startswith("triton_"):
            times[event.name].append(event.time_range.elapsed_us() / 1e3)
    return times


def launches_by_hand() -> Launches:
    """``do_bench`` of every launch of a step, with the step's own tensors."""
    import torch
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from torch._inductor.select_algorithm import extern_kernels
    from triton.testing import do_bench

    step = _training()
    step()
    launches: dict[tuple[str, int, str], Callable[[], Any]] = {}

    def like(x: Any) -> Any:
        return (x.shape, x.stride(), x.dtype) if isinstance(x, torch.Tensor) else x

    def watch(
        owner: Any, attribute: str, name_of: Callable[[Any], str], first: int = 0
    ) -> Callable[[], None]:
        original = getattr(owner, attribute)

        def watched(*args: Any, **kwargs: Any) -> Any:
            graph = threading.get_ident()  # the backward has a thread of its own
            shapes = str([like(x) for x in (*args[first:], *kwargs.values())])
            launches.setdefault((name_of(args), graph, shapes), lambda: original(*args, **kwargs))
            return original(*args, **kwargs)

        setattr(owner, attribute, watched)
        return lambda: setattr(owner, attribute, original)

    undo = [watch(CachingAutotuner, "run", lambda args: str(args[0].fn.__name__), 1)]
    for name in ("mm", "addmm", "bmm"):
        undo.append(watch(extern_kernels, name, lambda _, name=name: f"extern_kernels.{name}"))
    step()
    for restore in undo:
        restore()
    times: Launches = defaultdict(list)
    with torch.no_grad():
        for (name, *_), launch in launches.items():
            found = [do_bench(launch, return_mode="median")]
            while len(found) < (OFTEN if found[0] < SHORT_MS else 2):
                found.append(do_bench(launch, return_mode="median"))
            times[name].append(found)
    return times


def as_in_the_run(kernels: list["BenchRecord"], peak: "Peak", in_run: Times) -> list[Figure]:
    """The kernel that is off by most from its median in the trace.

    ``bench`` may take longer by what a note explains: the launch, and what the cache would hold.
    """
    from instrumented_backend.records.notes import TIMED_COLD

    by_name: dict[str, list[BenchRecord]] = defaultdict(list)
    for record in kernels:
        by_name[record.kernel.kernel_name].append(record)
    cache_bytes, launch_ms = peak.cache_bytes or 0, peak.launch_ms or 0.0
    rows, large = [], 0
    for name, times in in_run.items():
        records = by_name[name]
        if len(records) != 1 or records[0].kernel.total_bytes is None:
            continue  # of several shapes, or of two graphs: the trace does not tell them apart
        (record,) = records
        moved, true_ms = records[0].kernel.total_bytes, statistics.median(times)
        explained_ms = 0.0
        if TIMED_COLD in record.note_codes:
            held = min(moved, cache_bytes)
            explained_ms = launch_ms + held / peak.copy_gb_per_s / 1e6
        elif moved > cache_bytes:
            large += 1
        ms = None
        if record.timing is not None:
            ms = record.timing.ms - max(0.0, min(explained_ms, record.timing.ms - true_ms))
        rows.append(Figure(GPT2, f"bench: {name[:30]} as in the run, ms", "warm", ms, true_ms, 10))
    launch_us = 1e3 * launch_ms
    return [
        *_worst(rows),
        Figure(GPT2, "kernels larger than the cache", "warm", large, nearest(large, 2), 0),
        Figure("peak", "launch, us", "-", launch_us, nearest(launch_us, 1, 20), 0),
    ]


def as_by_hand(
    kernels: list["BenchRecord"], in_run: Times, first: Launches, second: Launches
) -> list[Figure]:
    """The launch that is off by most from ``do_bench`` of two processes, and how many there are."""
    rows = []
    missed = 0
    for name in {**in_run, **first}:
        found = sorted(
            (record for record in kernels if record.kernel.kernel_name == name), key=_ms_of
        )
        launches = [
            one + other
            for one, other in zip(
                sorted(first.get(name, [])), sorted(second.get(name, [])), strict=True
            )
        ]
        if not launches or len(found) != len(launches):
            missed += 1
            continue
        for record, times in zip(found, launches, strict=True):
            ms = None if record.timing is None else record.timing.ms
            middle = statistics.median(times)
            low, high = (middle, middle) if middle > SHORT_MS else (min(times), max(times))
            oracle = middle if ms is None else nearest(ms, low, high)
            rows.append(Figure(GPT2, f"bench: {name[:30]} by hand, ms", "warm", ms, oracle, 5))
    return [
        *_worst(rows),
        Figure(GPT2, "kernels without all their launches", "warm", missed, 0, 0),
    ]


def _ms_of(record: "BenchRecord") -> float:
    return 0.0 if record.timing is None else record.timing.ms


def _worst(rows: list[Figure]) -> list[Figure]:
    """None of none."""
    return sorted(rows, key=lambda row: float("inf") if row.error is None else row.error)[-1:]


# --- One large kernel ---------------------------------------------------------------------------


def large_by_hand() -> float:
    """Milliseconds by ``do_bench``; and the cache has its module."""
    import torch
    from torch._inductor.codecache import PyCodeCache
    from triton.testing import do_bench

    x, y = (torch.randn(SIDE, device="cuda") for _ in range(2))
    torch.compile(lambda x, y: x * 2 + y, backend="inductor")(x, y)
    (module,) = [module for module in PyCodeCache.modules if hasattr(module, "call")]
    (kernel,) = [value for value in vars(module).values() if hasattr(value, "launchers")]
    out = torch.empty_like(x)
    stream = torch.cuda.current_stream().cuda_stream
    ms: float = do_bench(
        lambda: kernel.run(x, y, out, x.numel(), stream=stream), return_mode="median"
    )
    return ms


def _of_the_large_kernel(run: "BenchRun", by_hand_ms: float) -> list[Figure]:
    (record,), (graph,) = run.kernels, run.graphs
    ms = None if record.timing is None else record.timing.ms
    share = record.share_of(run.peaks["cuda"].copy_gb_per_s)
    busy = _busy_pct(graph.profile or "")
    model = "x * 2 + y, 0.8 GB"
    return [
        Figure(model, "bench: time, ms", "warm", ms, by_hand_ms, 5),
        Figure(model, "bench: of a copy's GB/s, %", "warm", share, nearest(share or 0, 90, 105), 0),
        Figure(model, "bench: busy, %", "warm", busy, nearest(busy or 0, 50, 100), 0),
    ]


def _busy_pct(profile: str) -> float | None:
    """From the report of ``--profile``: ``Percent of time when CUDA is busy: 97.31%``."""
    found = [line for line in profile.splitlines() if line.startswith("Percent of time when")]
    return float(found[0].split(": ")[1].split("%")[0]) if found else None
