"""A number of steps instead of epochs: batches come from an iterator that is made again at its end."""

import json
import math
import os

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
device = "cuda"
x = torch.tensor([[math.sin(i), math.cos(i), 1.0] for i in range(16)])
data = TensorDataset(torch.arange(16), x, x @ torch.tensor([1.0, -2.0, 0.5]))
loader = DataLoader(data, batch_size=4, shuffle=True)
model = torch.nn.Linear(3, 1, bias=False)
torch.nn.init.zeros_(model.weight)
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

steps = []
batches = iter(loader)
for step in range(10):
    try:
        i, x, y = next(batches)
    except StopIteration:
        batches = iter(loader)
        i, x, y = next(batches)
    loss = torch.nn.functional.mse_loss(model(x.to(device)).squeeze(1), y.to(device))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    steps.append([i.tolist()])
    if step % 5 == 0:
        print("step", step)

torch.save({"state_dict": model.state_dict(), "step": step}, "model.pt")
with open(f"seen-{os.getpid()}.json", "w") as stream:
    json.dump({"steps": steps, "weight": model.weight.tolist()[0], "validated": 10}, stream)
