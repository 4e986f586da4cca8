"""The programs by name."""

from collections.abc import Callable
from functools import partial

from truth_programs import mixed, ranks, serving, training
from truth_programs.run import Run

PROGRAMS: dict[str, Callable[[Run], None]] = {
    "six-calls": training.six_calls,
    "blocks": training.blocks,
    "dear-first-step": training.dear_first_step,
    "accumulation": training.accumulation,
    "evaluation": partial(training.evaluation, eager=False, turns=12),
    "eager-evaluation": partial(training.evaluation, eager=True),
    "checkpoints": partial(training.evaluation, eager=True, turns=12, steps=100, pause_s=0.5),
    "rare-evaluation": training.rare_evaluation,
    "plain-loop": training.plain_loop,
    "sleep": training.sleep,
    "generation": serving.generation,
    "lengths": training.lengths,
    "growing": training.growing,
    "steps-60": partial(training.one_graph, steps=60),
    "steps-600": partial(training.one_graph, steps=600),
    "steps-6000": partial(training.one_graph, steps=6000),
    "inference": serving.inference,
    "diffusion": serving.diffusion,
    "long-call": serving.long_call,
    "eager-before": training.eager_before,
    "eager-between": training.eager_between,
    "eager-stages": training.eager_stages,
    "threads": serving.threads,
    "server": serving.server,
    "gan": training.gan,
    "loader": training.loader,
    "phases": mixed.phases,
    "rollouts": mixed.rollouts,
    "critics": mixed.critics,
}
ON_CUDA: dict[str, Callable[[Run], None]] = {
    "gpu-bound": training.gpu_bound,
    "gpu-bound-waits": training.gpu_bound_waits,
    "autocast": training.autocast,
    "reduce-overhead": training.reduce_overhead,
}
# On as many GPUs as there are ranks; on request with two processes on the CPU.
ON_RANKS: dict[str, Callable[[Run], None]] = {"ddp": ranks.ddp, "fsdp2": ranks.fsdp2}
ALL = {**PROGRAMS, **ON_CUDA, **ON_RANKS}
