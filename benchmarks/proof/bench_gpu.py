"""The command ``bench`` on a GPU: against torch.profiler in the run, PyTorch's benchmarks by hand,
a large copy."""

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
    from instrumented_backend.records.bench import BenchRecord, BenchRun

GPT2, BLOCK = "gpt2, 2 layers", "a transformer block"
LAYERS, BATCH, LENGTH = 2, 8, 1024
BLOCK_SHAPE, HEADS = (8, 256, 768), 12  # most of its kernels take 2 to 10 us
WARM_UP, STEPS = 3, 20
SIDE = 1 << 26  # elements of the large kernel: 2 x 268 MB read, 268 MB written
SHORTEST_MS = 1e-3  # of a kernel
# Milliseconds. Times of what takes less differ more, from call to call and from process to process:
# those are measured more often, and their range counts.
SHORT_MS, OFTEN = 0.02, 4
CODE = "## Call CompiledFxGraph"  # torch's own mark of a call of generated code
Times = dict[str, list[float]]  # milliseconds, by kernel name
Launches = dict[str, list[list[float]]]  # the same for each launch of a step


def kernels_on_gpu() -> list[Figure]:
    """The kernels of a GPT-2's training step, of a block's, and one that moves 0.8 GB."""
    with tempfile.TemporaryDirectory() as cache:
        in_run = child.call(trained, GPT2, TORCHINDUCTOR_CACHE_DIR=cache)
        by_hand = [child.call(launches_by_hand, TORCHINDUCTOR_CACHE_DIR=cache) for _ in range(2)]
        run = _benched(cache)
    rows = [
        *as_in_the_run(GPT2, run, in_run),
        *as_by_hand(run.kernels, in_run["times"], *by_hand),
        *the_block(),
    ]
    with tempfile.TemporaryDirectory() as cache:
        ms = child.call(large_by_hand, TORCHINDUCTOR_CACHE_DIR=cache)
        run = _benched(cache, profile=True)
    return rows + _of_the_large_kernel(run, ms)


def the_block() -> list[Figure]:
    """Forward and backward of one block in training; small kernels."""
    with tempfile.TemporaryDirectory() as cache:
        in_run = child.call(trained, BLOCK, TORCHINDUCTOR_CACHE_DIR=cache)
        return as_in_the_run(BLOCK, _benched(cache), in_run)


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


def _block_training() -> Callable[[], None]:
    """The same of a block; what the optimizer reads is more than an L2 cache holds."""
    import torch
    import workloads

    torch.manual_seed(0)
    model = workloads.Block(BLOCK_SHAPE[-1], HEADS).cuda()
    x = torch.randn(BLOCK_SHAPE, device="cuda", dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    compiled = torch.compile(model, backend="inductor")

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def trained(model: str) -> dict[str, Any]:
    """From a trace of some steps: each Triton kernel's ``times``, and ``sum_ms`` of all that the
    graphs' generated code ran on the GPU in a step."""
    import torch

    step = _training() if model == GPT2 else _block_training()
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    with torch.profiler.profile() as profile:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    events = profile.events()
    times: Times = defaultdict(list)
    on_gpu = torch.autograd.DeviceType.CUDA
    for event in events:
        if event.device_type == on_gpu and event.name.startswith("triton_"):
            times[event.name].append(event.time_range.elapsed_us() / 1e3)
    calls = [e for e in events if e.device_type != on_gpu and e.name.startswith(CODE)]
    return {"times": times, "sum_ms": sum(map(launched_us, calls)) / 1e3 / STEPS}


def launched_us(event: Any) -> float:
    """Of all that a FunctionEvent launched, by itself or in what it encloses."""
    own = sum(kernel.duration for kernel in event.kernels)
    return float(own + sum(launched_us(inner) for inner in event.cpu_children))


def launches_by_hand() -> Launches:
    """PyTorch's benchmark, which empties the L2 cache, of every launch of a step, with the step's
    own tensors: the time of its kernels in torch.profiler."""
    import torch
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from torch._inductor.select_algorithm import extern_kernels
    from torch._inductor.utils import do_bench_using_profiling

    def benched(launch: Callable[[], Any]) -> float:
        return float(do_bench_using_profiling(launch, warmup=2, rep=20))

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
            found = [benched(launch)]
            while len(found) < (OFTEN if found[0] < SHORT_MS else 2):
                found.append(benched(launch))
            times[name].append(found)
    return times


def as_in_the_run(model: str, run: "BenchRun", in_run: dict[str, Any]) -> list[Figure]:
    """The sum over the graphs, and the kernel that is off by most from its median in the trace."""
    sums = [graph.kernels_ms for graph in run.graphs]
    total = None if None in sums else sum(ms or 0 for ms in sums)
    by_name: dict[str, list[BenchRecord]] = defaultdict(list)
    for record in run.kernels:
        by_name[record.kernel.kernel_name].append(record)
    rows = []
    for name, times in in_run["times"].items():
        true_ms = statistics.median(times)
        if len(by_name[name]) != 1 or true_ms < SHORTEST_MS:
            continue  # of several shapes, or of two graphs: the trace does not tell them apart
        (record,) = by_name[name]
        ms = None if record.timing is None else record.timing.ms
        rows.append(Figure(model, f"bench: {name[:30]} as in the run, ms", "warm", ms, true_ms, 15))
    what = "bench: all kernels as in the run, ms"
    return [Figure(model, what, "warm", total, in_run["sum_ms"], 10), *_worst(rows)]


def as_by_hand(
    kernels: list["BenchRecord"], in_run: Times, first: Launches, second: Launches
) -> list[Figure]:
    """The launch, with an empty cache, that is off by most from the benchmarks by hand of two
    processes, and how many there are."""
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
            ms = None if record.cold is None else record.cold.ms
            middle = statistics.median(times)
            low, high = (middle, middle) if middle > SHORT_MS else (min(times), max(times))
            oracle = middle if ms is None else nearest(ms, low, high)
            rows.append(Figure(GPT2, f"bench: {name[:30]} by hand, ms", "cold", ms, oracle, 10))
    return [
        *_worst(rows),
        Figure(GPT2, "kernels without all their launches", "warm", missed, 0, 0),
    ]


def _ms_of(record: "BenchRecord") -> float:
    return 0.0 if record.cold is None else record.cold.ms


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
