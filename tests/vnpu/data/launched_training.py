"""A training for one GPU; prints the loss on all of its data after each epoch."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(net, loader, optimizer):
    for x, y in loader:
        loss = nn.functional.mse_loss(net(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=False)
    everything = DataLoader(data, batch_size=32)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        train(model, loader, optimizer)
        with torch.no_grad():
            x, y = next(iter(everything))
            print("epoch", epoch, "loss", round(nn.functional.mse_loss(model(x.cuda()), y.cuda()).item(), 5), flush=True)


if __name__ == "__main__":
    main()
