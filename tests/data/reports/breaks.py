import torch

compiled = 0

@torch.compiler.disable
def log(x):
    return float(x.sum())

def block(x, n):
    y = x * n
    if y.sum() > 0:
        print("positive")
    log(y)
    return y.cos()

def items():
    yield torch.ones(3) * 2

torch.compile(block, backend="instrumented")(torch.ones(4, requires_grad=True), 2).sum().backward()

def sizes(x, n):
    return x.sin() + n

torch._dynamo.config.recompile_limit = 3
step = torch.compile(sizes, backend="instrumented", dynamic=False)
for size in range(2, 8):
    step(torch.ones(size), 1.5)
for _ in torch.compile(items, backend="instrumented")():
    pass
