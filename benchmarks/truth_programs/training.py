"""Training loops: how often graphs are called a step, and what comes between the steps."""

import math
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from truth_programs.models import (
    BATCH,
    WIDTH,
    Blocks,
    batches,
    eager_work,
    forever,
    loss_of,
    plain_sgd,
)
from truth_programs.run import EAGER, Run


def _train(
    run: Run,
    model: nn.Module,
    steps: int,
    in_place: bool = False,
    size: int = BATCH,
    autocast: bool = False,
    waits: bool = False,
    **options: Any,
) -> None:
    """``model`` compiled as a whole, with ``options``, or each of its blocks; AdamW.

    With ``waits`` it looks at the loss in each step.
    """
    model.to(run.device)
    inputs = forever(batches(run.device, size=size))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    if in_place:
        run.compile_in_place(model.blocks)
    compiled = model if in_place else run.compile(model, **options)
    for _ in run.times(steps):
        with run.part("step"):
            with torch.autocast(run.device, dtype=torch.bfloat16, enabled=autocast):
                loss = loss_of(run.call(compiled, next(inputs)))
            run.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if waits:
                with run.spent("aten::item"):
                    loss.item()


def one_graph(run: Run, steps: int) -> None:
    _train(run, Blocks(2), steps)


def gpu_bound(run: Run) -> None:
    """Batches so large that the host waits for the GPU."""
    _train(run, Blocks(6), 400, size=200_000)


def gpu_bound_waits(run: Run) -> None:
    """The same, and the host waits for each step's loss."""
    _train(run, Blocks(6), 300, size=200_000, waits=True)


def autocast(run: Run) -> None:
    _train(run, Blocks(6, broken=True), 400, autocast=True)


def reduce_overhead(run: Run) -> None:
    """CUDA graphs."""
    _train(run, Blocks(6), 400, mode="reduce-overhead")


def six_calls(run: Run) -> None:
    _train(run, Blocks(6, broken=True), 400)


def blocks(run: Run) -> None:
    _train(run, Blocks(6), 400, in_place=True)


def plain_loop(run: Run) -> None:
    """Eight compiled blocks, 4,000 tiny steps, `plain_sgd`."""
    model = Blocks(8, 32).to(run.device)
    x = torch.randn(4, 32, device=run.device)
    run.compile_in_place(model.blocks)
    state: dict[nn.Parameter, torch.Tensor] = {}
    for _ in run.times(4000):
        with run.part("step"):
            run.backward(loss_of(run.call(model, x)))
            plain_sgd(model, state)


def dear_first_step(run: Run) -> None:
    """Whose own work takes a hundred times as long as a step: a large product, and a pause."""
    model = Blocks(4, broken=True).to(run.device)
    inputs = forever(batches(run.device))
    large = torch.randn(2048, 2048, device=run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    compiled = run.compile(model)
    for step in run.times(400):
        with run.part("step"):
            output = run.call(compiled, next(inputs))
            if step == 0:
                for _ in range(8):
                    with run.spent("aten::matmul"):
                        product = large @ large
                    output = output + product[0, 0] * 0
                run.sleep(0.3)
            run.backward(loss_of(output))
            optimizer.step()
            optimizer.zero_grad()


def accumulation(run: Run) -> None:
    """Gradients of eight batches in a step."""
    model = Blocks(2, broken=True).to(run.device)
    inputs = forever(batches(run.device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    compiled = run.compile(model)
    for _ in run.times(250):
        for number in range(8):
            with run.part("first batch" if number == 0 else "batch"):
                run.backward(loss_of(run.call(compiled, next(inputs))) / 8)
        with run.part("update"):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


def evaluation(
    run: Run, eager: bool, turns: int = 20, steps: int = 50, pause_s: float = 0.0
) -> None:
    """Now and then: compiled, or in eager for longer than the training between.

    Then comes a pause, as of a checkpoint, in which nothing runs.
    """
    model = Blocks(2).to(run.device)
    inputs = forever(batches(run.device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    compiled = run.compile(model)
    for _ in run.times(turns):
        for _ in range(steps):
            with run.part("step"):
                run.backward(loss_of(run.call(compiled, next(inputs))))
                optimizer.step()
                optimizer.zero_grad()
        with torch.no_grad():
            for _ in range(400 if eager else 60):
                with run.part("evaluation"):
                    x = next(inputs)
                    output = model(x) if eager else run.call(compiled, x)
                    loss_of(output).item()
        if pause_s:
            run.sleep(pause_s)


def rare_evaluation(run: Run) -> None:
    """In eager, six times, and each for another time."""
    model = Blocks(1).to(run.device)
    inputs = forever(batches(run.device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    compiled = run.compile(model)
    for turn in run.times(6):
        for _ in range(1000):
            with run.part("step"):
                run.backward(loss_of(run.call(compiled, next(inputs))))
                optimizer.step()
                optimizer.zero_grad()
        with torch.no_grad():
            for _ in range(400 + 150 * (turn % 3)):
                with run.part("evaluation"):
                    torch.softmax(model(next(inputs)), -1).amax().item()


def sleep(run: Run) -> None:
    """Nine seconds, in the middle."""
    model = Blocks(3).to(run.device)
    inputs = forever(batches(run.device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    compiled = run.compile(model)
    for half in range(2):
        for _ in run.times(250):
            with run.part("step"):
                run.backward(loss_of(run.call(compiled, next(inputs))))
                optimizer.step()
                optimizer.zero_grad()
        if half == 0:
            run.sleep(9)


def lengths(run: Run) -> None:
    """Batches of all lengths."""
    model = Blocks(2).to(run.device)
    generator = torch.Generator().manual_seed(0)
    longest = torch.randn(128, WIDTH, device=run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    sizes = torch.randint(8, 128, (800,), generator=generator).tolist()
    compiled = run.compile(model)
    for step in run.times(800):
        with run.part("step"):
            x = longest[: sizes[step]]
            torch._dynamo.mark_dynamic(x, 0)
            run.backward(loss_of(run.call(compiled, x)))
            optimizer.step()
            optimizer.zero_grad()


def growing(run: Run) -> None:
    """After each step ever more ops, as where a loop's bound grows: windows cost ever more."""
    model = Blocks(2).to(run.device)
    inputs = forever(batches(run.device))
    x = torch.randn(64, WIDTH, device=run.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    compiled = run.compile(model)
    for step in run.times(3000):
        with run.part("step"):
            run.backward(loss_of(run.call(compiled, next(inputs))))
            optimizer.step()
            optimizer.zero_grad()
        with run.spent(EAGER):
            for _ in range(1 + step // 40):
                with run.part(EAGER):
                    torch.roll(x, 1)


def eager_before(run: Run) -> None:
    """Half of the run, after `torch.compile` and before the first call."""
    model = Blocks(2).to(run.device)
    inputs = forever(batches(run.device))
    x = torch.randn(256, WIDTH, device=run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    compiled = run.compile(model)
    for _ in run.stretch(4):
        with run.part(EAGER), run.spent(EAGER):
            eager_work(x)
    for _ in run.stretch(4):
        with run.part("step"):
            run.backward(loss_of(run.call(compiled, next(inputs))))
            optimizer.step()
            optimizer.zero_grad()


def eager_between(run: Run) -> None:
    """As long as the steps between."""
    model = Blocks(2).to(run.device)
    inputs = forever(batches(run.device))
    x = torch.randn(256, WIDTH, device=run.device)
    compiled = run.compile(model)
    state: dict[nn.Parameter, torch.Tensor] = {}
    for _ in run.times(8):
        for _ in run.stretch(0.5):
            with run.part("step"):
                run.backward(loss_of(run.call(compiled, next(inputs))))
                plain_sgd(model, state)
        for _ in run.stretch(0.5):
            with run.part(EAGER), run.spent(EAGER):
                eager_work(x)


def eager_stages(run: Run) -> None:
    """Eager work of three kinds, one after the other, before the first call and once more between.

    What it takes to see them differs by as much as their ops do in length.
    """
    model = Blocks(2).to(run.device)
    inputs = forever(batches(run.device))
    x, small = (torch.randn(256, width, device=run.device) for width in (WIDTH, 4))
    compiled = run.compile(model)
    for _ in range(2):
        for _ in run.times(6000):
            with run.part("work"), run.spent(EAGER):
                eager_work(x)
        for _ in run.times(12_000):
            with run.part("small"), run.spent(EAGER):
                y = small
                for _ in range(8):
                    y = y * 1.5
        for _ in run.times(300):
            with run.part("sort"), run.spent(EAGER):
                order = torch.randperm(60_000, device=run.device)
                with run.spent("aten::sort"):  # what it takes differs from one process to the next
                    order.sort()
        for _ in run.times(150):
            with run.part("step"):
                run.backward(loss_of(run.call(compiled, next(inputs))))


def gan(run: Run) -> None:
    """Two networks, two optimizers, both in each step."""
    maker, judge = Blocks(2).to(run.device), Blocks(2).to(run.device)
    real = forever(batches(run.device))
    adam = [torch.optim.Adam(net.parameters(), lr=1e-4) for net in (maker, judge)]
    make, judged = run.compile(maker), run.compile(judge)
    for _ in run.times(400):
        with run.part("step"):
            x = next(real)
            noise = torch.randn_like(x)
            fake = run.call(make, noise)
            right = loss_of(run.call(judged, x)) - loss_of(run.call(judged, fake.detach()))
            run.backward(right)
            adam[1].step()
            adam[1].zero_grad()
            run.backward(loss_of(run.call(judged, fake)))
            adam[0].step()
            adam[0].zero_grad()
            adam[1].zero_grad()


def loader(run: Run) -> None:
    """Batches put together in this process, at length."""

    def collate(items: list[int]) -> torch.Tensor:
        rows = []
        for item in items:
            row = torch.full((WIDTH,), item / 1000)
            rows.append(row + sum(math.sin(item * k) for k in range(400)))
        return torch.stack(rows)

    model = Blocks(2).to(run.device)
    items = list(range(64 * 600))
    data = DataLoader(items, batch_size=64, collate_fn=collate)  # type: ignore[arg-type]
    batch_iterator = iter(data)
    compiled = run.compile(model)
    state: dict[nn.Parameter, torch.Tensor] = {}
    for _ in run.times(600):
        with run.part("data"), run.spent("data"):
            x = next(batch_iterator)
        with run.part("step"):
            run.backward(loss_of(run.call(compiled, x.to(run.device))))
            plain_sgd(model, state)
