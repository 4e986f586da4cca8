import torch

model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters())
step = torch.compile(model, backend="instrumented")
for _ in range(20):
    optimizer.zero_grad()
    step(torch.randn(32, 8)).square().mean().backward()
    optimizer.step()
