"""The command ``bench``: its times against Inductor's own harness in the generated modules."""

import tempfile
from pathlib import Path

from proof import child
from proof.figures import Figure

BATCH, LENGTH = 2, 256


def sum_of_kernels(layers: int = 2) -> list[Figure]:
    """Forward and backward of a GPT-2 (width 768, full vocabulary) on CPU.

    The sum of what `bench` finds for the kernels and the extern calls, and its time of the whole
    call, against ``benchmark_compiled_module`` of the same module.
    """
    from instrumented_backend.bench.collect import find_targets
    from instrumented_backend.bench.driver import Options, bench

    model = f"gpt2, {layers} layers"
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        child.call(compile_gpt2, layers, TORCHINDUCTOR_CACHE_DIR=cache)
        targets = find_targets([Path(cache)])
        graphs = [target for target in targets.modules if target.kind == "graph"]
        run = bench(graphs, Options())
        for graph in run.graphs:
            name = Path(graph.path).stem[:6]
            times = child.call(harness, graph.path, TORCHINDUCTOR_CACHE_DIR=cache)
            call_ms = None if graph.call is None else graph.call.ms
            rows += [
                Figure(model, f"bench: all of {name}, ms", "warm", graph.kernels_ms, times, 15),
                Figure(model, f"bench: call of {name}, ms", "warm", call_ms, times, 15),
            ]
    return rows


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
        seconds: float = module.benchmark_compiled_module(module.get_args(), times=5, repeat=15)
    return 1e3 * seconds
