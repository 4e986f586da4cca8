"""The command ``bench``: its times against Inductor's own harness in the generated modules."""

import statistics
import sys
import tempfile
from pathlib import Path

import click

from proof import child
from proof.figures import Figure

BATCH, LENGTH = 2, 256


def sum_of_kernels(layers: int = 2, rounds: int = 3) -> list[Figure]:
    """Forward and backward of a GPT-2 (width 768, full vocabulary) on CPU.

    The sum of what `bench` finds for the kernels and the extern calls, and its time of the whole
    call, against ``benchmark_compiled_module`` of the same module; medians of some rounds, in which
    the two take turns.
    """
    from instrumented_backend.bench.driver import Options, bench
    from instrumented_backend.bench.targets import find_targets

    model = f"gpt2, {layers} layers"
    sums: dict[str, list[float | None]] = {}
    calls: dict[str, list[float | None]] = {}
    oracle: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as cache,
        click.progressbar(range(rounds), label="bench", file=sys.stderr) as bar,
    ):
        child.call(compile_gpt2, layers, TORCHINDUCTOR_CACHE_DIR=cache)
        targets = find_targets([Path(cache)])
        graphs = [target for target in targets.modules if target.kind == "graph"]
        for _ in bar:
            for graph in bench(graphs, Options()).graphs:
                call_ms = None if graph.call is None else graph.call.ms
                sums.setdefault(graph.path, []).append(graph.kernels_ms)
                calls.setdefault(graph.path, []).append(call_ms)
                times = child.call(harness, graph.path, TORCHINDUCTOR_CACHE_DIR=cache)
                oracle.setdefault(graph.path, []).append(times)
    return [
        Figure(
            model,
            f"bench: {what} of {Path(path).stem[:6]}, ms",
            "warm",
            _median(found[path]),
            statistics.median(times),
            15,
        )
        for path, times in oracle.items()
        for what, found in (("all", sums), ("call", calls))
    ]


def _median(values: list[float | None]) -> float | None:
    """None if one is."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if len(known) == len(values) else None


def compile_gpt2(layers: int) -> None:
    """With plain Inductor, in a process with the cache's setting."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=layers, use_cache=False, loss_type="ForCausalLM")
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    model = GPT2LMHeadModel(config)
    tokens = torch.randint(0, config.vocab_size, (BATCH, LENGTH))
    torch.compile(model, backend="inductor")(input_ids=tokens, labels=tokens).loss.backward()


def harness(path: str) -> float:
    """Milliseconds of a call, by the module's own ``benchmark_compiled_module``."""
    import importlib.util

    import torch

    spec = importlib.util.spec_from_file_location("generated", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with torch.no_grad():
        seconds: float = module.benchmark_compiled_module(module.get_args(), times=3, repeat=7)
    return 1e3 * seconds
