"""Loaders that order, batch or make their data themselves."""

import json
import math
import os

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler, SequentialSampler


class Backwards(Sampler):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        return iter(range(len(self.data) - 1, -1, -1))

    def __len__(self):
        return len(self.data)


def point(i):
    x = torch.tensor([math.sin(i), math.cos(i), 1.0])
    return i, x, x @ torch.tensor([1.0, -2.0, 0.5])


class Points(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        return point(i)


class Stream(IterableDataset):
    def __iter__(self):
        return (point(i) for i in range(16))


points = Points()
ordered = DataLoader(points, batch_size=4, sampler=Backwards(points))
batched = DataLoader(points, batch_sampler=BatchSampler(SequentialSampler(points), 4, drop_last=False))
streamed = DataLoader(Stream(), batch_size=4)

model = torch.nn.Linear(3, 1, bias=False)
torch.nn.init.zeros_(model.weight)
model.to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
steps = []
for loader in (ordered, batched, streamed):
    for i, x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x.cuda()).squeeze(1), y.cuda())
        loss.backward()
        optimizer.step()
        steps.append([i.tolist()])
print(len(steps), "steps")
torch.save(model.state_dict(), "model.pt")
with open(f"seen-{os.getpid()}.json", "w") as stream:
    json.dump({"steps": steps, "weight": model.weight.tolist()[0], "validated": 10}, stream)
