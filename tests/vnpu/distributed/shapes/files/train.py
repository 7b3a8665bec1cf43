"""The model, the loaders and the training loop are in files of their own."""

import json
import os

import torch
from data import make_loaders
from net import Net

EPOCHS = 2


def train_one_epoch(net, loader, optimizer, criterion):
    seen = []
    net.train()
    for i, x, y in loader:
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        optimizer.zero_grad()
        criterion(net(x), y).backward()
        optimizer.step()
        seen.append([i.tolist()])
    return seen


def main():
    torch.manual_seed(0)
    net = Net().cuda()
    criterion = torch.nn.MSELoss().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    train_loader, val_loader = make_loaders(4)
    steps = []
    for epoch in range(EPOCHS):
        steps += train_one_epoch(net, train_loader, optimizer, criterion)
        net.eval()
        validated = net.count(val_loader)
        print("epoch", epoch, validated)
        torch.save(net.state_dict(), "model.pt")
    with open(f"seen-{os.getpid()}.json", "w") as stream:
        json.dump({"steps": steps, "weight": net.fc.weight.tolist()[0], "validated": validated}, stream)


if __name__ == "__main__":
    main()
