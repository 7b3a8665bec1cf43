"""A weighted sampler of the script's own, --gpu, drop_last, and generators that move batches."""

import argparse
import json
import math
import os

import torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", type=int, default=0)
parser.add_argument("--batch-size", type=int, default=4)
args = parser.parse_args()


def points(count):
    x = torch.tensor([[math.sin(i), math.cos(i), 1.0] for i in range(count)])
    return TensorDataset(torch.arange(count), x, x @ torch.tensor([1.0, -2.0, 0.5]))


def on_gpu(loader):
    for i, x, y in loader:
        yield i, x.cuda(args.gpu, non_blocking=True), y.cuda(args.gpu, non_blocking=True)


def main():
    torch.manual_seed(3)
    torch.cuda.set_device(args.gpu)
    train_set, test_set = points(18), points(10)
    sampler = WeightedRandomSampler([1.0 + i % 2 for i in range(18)], num_samples=18)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=5)
    model = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    model.cuda(args.gpu)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = []
    for epoch in range(2):
        for i, x, y in on_gpu(train_loader):
            loss = ((model(x).squeeze(1) - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps.append([i.tolist()])
        with torch.no_grad():
            validated = sum(len(model(x)) for _, x, _ in on_gpu(test_loader))
        print("epoch", epoch, validated)
    torch.save({"epoch": epoch, "model": model.state_dict()}, "model.pt")
    with open(f"seen-{os.getpid()}.json", "w") as stream:
        json.dump({"steps": steps, "weight": model.weight.tolist()[0], "validated": validated}, stream)


if __name__ == "__main__":
    main()
