"""Programs that are no training loops, or no such loop only."""

import threading
import time

import torch
from torch import nn

from truth_programs.models import BATCH, WIDTH, Blocks, batches, forever, loss_of, plain_sgd
from truth_programs.run import Run

PROMPT = 8


class Attention(nn.Module):
    """One layer of a decoder: a token, the keys and values before it, and both with its own."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(
        self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q, k, v = self.qkv(x).chunk(3, -1)
        keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
        weights = torch.softmax(q @ keys.transpose(1, 2) / WIDTH**0.5, -1)
        return x + self.out(weights @ values), keys, values


def generation(run: Run) -> None:
    """Training first, and then tokens one by one, with a cache that grows."""
    model, decoder = Blocks(2).to(run.device), Attention().to(run.device)
    inputs = forever(batches(run.device))
    table = torch.randn(100, WIDTH, device=run.device)
    state: dict[nn.Parameter, torch.Tensor] = {}
    compiled, decode = run.compile(model), run.compile(decoder, dynamic=True)
    for _ in run.times(500):
        with run.part("step"):
            run.backward(loss_of(run.call(compiled, next(inputs))))
            plain_sgd(model, state)
    with torch.no_grad():
        for _ in run.times(6):
            with run.part("prompt"):
                token = torch.zeros(8, dtype=torch.long, device=run.device)
                keys = torch.randn(8, PROMPT, WIDTH, device=run.device)
                values = torch.randn(8, PROMPT, WIDTH, device=run.device)
            for _ in range(250):
                with run.part("token"):
                    x = table[token].unsqueeze(1)
                    x, keys, values = run.call(decode, x, keys, values)
                    token = (x.squeeze(1) @ table.t()).argmax(-1)


def inference(run: Run) -> None:
    """A call, and two ops after it."""
    model = Blocks(1).to(run.device)
    inputs = forever(batches(run.device))
    compiled = run.compile(model)
    with torch.no_grad():
        for _ in run.times(3000):
            with run.part("step"):
                run.call(compiled, next(inputs)).softmax(-1).topk(5)


def diffusion(run: Run) -> None:
    """One graph called twice a step; what runs after each call takes about as long."""
    model = Blocks(1).to(run.device)
    compiled = run.compile(model)
    with torch.no_grad():
        for _ in run.times(60):
            with run.part("start"):
                x = torch.randn(BATCH, WIDTH, device=run.device)
            for step in range(50):
                with run.part("step"):
                    guided = run.call(compiled, x)
                    plain = x * 0.9
                    norm = plain.norm(dim=-1, keepdim=True)
                    unguided = run.call(compiled, plain / (norm + 1))
                    both = unguided + 3 * (guided - unguided)
                    x = ((x - both * 0.1) / (1.1 + step / 50)).clamp(-3, 3)
                    x = x + 0.01 * torch.randn_like(x)


def server(run: Run) -> None:
    """A request every 20 ms."""
    model = Blocks(4).to(run.device)
    inputs = forever(batches(run.device))
    compiled = run.compile(model)
    with torch.no_grad():
        for _ in run.times(250):
            run.sleep(0.02)
            with run.part("request"):
                x = next(inputs)
                x = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)
                run.call(compiled, x).softmax(-1).topk(5)


def threads(run: Run) -> None:
    """Four, which call two functions in turn; the main thread waits for them.

    Who has the interpreter is chance: two runs of some hundred calls differ by several points.
    """
    first, second = Blocks(2).to(run.device), Blocks(3).to(run.device)
    x = batches(run.device, 1)[0]
    functions = [run.compile(first), run.compile(second)]
    with torch.no_grad(), run.part("first calls"):
        for function in functions:
            run.call(function, x)
    # Parts are counted by thread: adding one is no single step in Python.
    runs = run.times(4000)

    @torch.no_grad()
    def work(thread: int) -> None:
        for turn in runs:
            with run.part(f"request of thread {thread}"):
                functions[(thread + turn) % 2](x).softmax(-1).sum(-1).mul(2)

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


@torch.library.custom_op("truth::busy", mutates_args=())
def busy(x: torch.Tensor, seconds: torch.Tensor) -> torch.Tensor:
    """Computes for so long: in Python, so that it is the same number of ops each time."""
    end = time.perf_counter() + seconds.item()
    while time.perf_counter() < end:
        sum(range(1000))
    return x.clone()


@busy.register_fake
def _(x: torch.Tensor, seconds: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def long_call(run: Run) -> None:
    """One call of 5 s, or 30, in the middle of a training loop."""
    model = Blocks(2).to(run.device)
    inputs = forever(batches(run.device))
    square = torch.randn(WIDTH, WIDTH, device=run.device)
    briefly = torch.tensor(0.01)
    seconds = torch.tensor(run.seconds(30 if run.long else 5))
    compiled = run.compile(model)
    long_function = run.compile(lambda x, seconds: busy(x.sin(), seconds) + 1)
    state: dict[nn.Parameter, torch.Tensor] = {}
    for half in range(2):
        for _ in run.times(400):
            with run.part("step"):
                run.backward(loss_of(run.call(compiled, next(inputs))))
                plain_sgd(model, state)
        if half == 0:
            with run.part("short call"):
                run.call(long_function, square, briefly)
            with run.part("long call"):
                long_function(square, seconds)
