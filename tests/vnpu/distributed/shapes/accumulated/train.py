"""Mixed precision, gradients of two batches added up, loaders made by a function, the whole model saved."""

import json
import math
import os

import torch
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset

ACCUMULATE = 2


def points(count):
    x = torch.tensor([[math.sin(i), math.cos(i), 1.0] for i in range(count)])
    return TensorDataset(torch.arange(count), x, x @ torch.tensor([1.0, -2.0, 0.5]))


def get_loaders(batch_size):
    train_loader = DataLoader(points(32), batch_size=batch_size, shuffle=True)
    val_loader = DataLoader(points(10), batch_size=5, shuffle=False)
    return train_loader, val_loader


def train(model, loader, optimizer, scaler, steps):
    batches = []
    optimizer.zero_grad()
    for step, (i, x, y) in enumerate(loader):
        x, y = x.cuda(), y.cuda()
        with autocast():
            loss = ((model(x).squeeze(1).float() - y) ** 2).mean() / ACCUMULATE
        scaler.scale(loss).backward()
        batches.append(i.tolist())
        if (step + 1) % ACCUMULATE == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            steps.append(batches)
            batches = []


def main():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    train_loader, val_loader = get_loaders(4)
    model = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = GradScaler(init_scale=128.0)
    steps = []
    for epoch in range(2):
        model.train()
        train(model, train_loader, optimizer, scaler, steps)
        model.eval()
        with torch.no_grad():
            validated = sum(len(model(x.cuda())) for _, x, _ in val_loader)
        print(f"epoch {epoch} {validated}")
    torch.save(model, "model.pt")
    with open(f"seen-{os.getpid()}.json", "w") as stream:
        json.dump({"steps": steps, "weight": model.weight.tolist()[0], "validated": validated}, stream)


if __name__ == "__main__":
    main()
