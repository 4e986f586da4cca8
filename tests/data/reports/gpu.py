import torch

import instrumented_backend  # makes the name known where the package is not installed

device = "cuda" if torch.cuda.is_available() else "cpu"
layers = (torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.LayerNorm(512), torch.nn.Linear(512, 64))
model = torch.nn.Sequential(*layers).to(device)
optimizer = torch.optim.AdamW(model.parameters())


def forward(x):
    loss = model(x).square().mean()
    if loss > 1e9:  # a graph break
        return loss * 0
    return loss.sqrt()


step = torch.compile(forward, backend="instrumented")
for _ in range(60):
    optimizer.zero_grad()
    step(torch.randn(512, 256, device=device)).backward()
    optimizer.step()
