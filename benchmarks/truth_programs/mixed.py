"""Programs of several loops, one after the other or inside each other."""

import torch
from torch import nn

from truth_programs.models import BATCH, WIDTH, Blocks, batches, forever, loss_of, plain_sgd
from truth_programs.run import Run


def phases(run: Run) -> None:
    """One loop after the other: AdamW, inference, and an optimizer as people write it."""
    model = Blocks(2).to(run.device)
    inputs = forever(batches(run.device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    state: dict[nn.Parameter, torch.Tensor] = {}
    compiled = run.compile(model)
    for _ in run.times(600):
        with run.part("AdamW"):
            run.backward(loss_of(run.call(compiled, next(inputs))))
            optimizer.step()
            optimizer.zero_grad()
    with torch.no_grad():
        for _ in run.times(2500):
            with run.part("inference"):
                run.call(compiled, next(inputs)).softmax(-1).topk(5)
    for _ in run.times(600):
        with run.part("plain loop"):
            run.backward(loss_of(run.call(compiled, next(inputs))))
            plain_sgd(model, state)


def rollouts(run: Run) -> None:
    """A policy acts for 32 steps, and is trained on them four times."""
    policy = nn.Sequential(Blocks(1), nn.Linear(WIDTH, 8)).to(run.device)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)
    compiled = run.compile(policy)
    moves = torch.randn(8, WIDTH, device=run.device)
    for _ in run.times(40):
        with run.part("reset"):
            x = torch.randn(BATCH, WIDTH, device=run.device)
        for _ in range(32):
            with run.part("step"), torch.no_grad():
                weights = run.call(compiled, x).softmax(-1)
                actions = torch.multinomial(weights, 1).squeeze(-1)
                x = torch.tanh(x + 0.1 * moves[actions])
        for _ in range(4):
            with run.part("update"):
                run.backward(loss_of(run.call(compiled, x)))
                nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()


def critics(run: Run) -> None:
    """Five steps of a critic for each of the generator's."""
    generator, critic = Blocks(2).to(run.device), Blocks(1).to(run.device)
    real = forever(batches(run.device))
    optimizers = [torch.optim.RMSprop(net.parameters(), lr=1e-5) for net in (generator, critic)]
    makes, judges = run.compile(generator), run.compile(critic)
    for _ in run.times(80):
        for _ in range(5):
            with run.part("critic"):
                with torch.no_grad():
                    made = run.call(makes, torch.randn(BATCH, WIDTH, device=run.device))
                apart = run.call(judges, made).mean() - run.call(judges, next(real)).mean()
                run.backward(apart)
                optimizers[1].step()
                optimizers[1].zero_grad()
                with torch.no_grad():
                    for p in critic.parameters():
                        p.clamp_(-0.1, 0.1)
        with run.part("generator"):
            made = run.call(makes, torch.randn(BATCH, WIDTH, device=run.device))
            run.backward(-run.call(judges, made).mean())
            optimizers[0].step()
            for optimizer in optimizers:
                optimizer.zero_grad()
