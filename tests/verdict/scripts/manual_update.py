"""Regression without torch.optim: the parameters are updated by hand."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--decay", type=float, default=1e-3, help="weight decay")
args = parser.parse_args()

torch.manual_seed(2)
x = torch.rand(512, 3) * 4 - 2
y = (x[:, :1] * x[:, 1:2]).sin() + 0.5 * x[:, 2:] + 0.05 * torch.randn(512, 1)
loader = DataLoader(TensorDataset(x, y), batch_size=args.batch_size, shuffle=True)

model = nn.Sequential(nn.Linear(3, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1)).cuda()
loss_fn = nn.MSELoss()
lr = args.lr
for epoch in range(args.epochs):
    for bx, by in loader:
        bx, by = bx.cuda(), by.cuda()
        pred = model(bx)
        loss = loss_fn(pred, by)
        loss = loss + 1e-3 * pred.abs().mean()

        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= lr * (p.grad + args.decay * p)
    print(f"epoch {epoch}: lr {lr:.4f} loss {loss.item():.5f}")
    lr *= 0.7

with torch.no_grad():
    final = loss_fn(model(x.cuda()), y.cuda())
print(f"final loss: {final.item():.5f}")
