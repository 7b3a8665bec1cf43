"""Fit a smooth function of two variables with L-BFGS on the whole data, the penalty on the weights relaxed late."""

import argparse

import numpy as np
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=34)
parser.add_argument("--points", type=int, default=300)
parser.add_argument("--hidden", type=int, default=20)
parser.add_argument("--lr", type=float, default=0.4)
parser.add_argument("--history-size", type=int, default=8)
parser.add_argument("--penalty", type=float, default=3e-3)
parser.add_argument("--relax-at", type=int, default=26)
args = parser.parse_args()
torch.manual_seed(2)
device = torch.device("cuda")


def surface(x):
    return torch.sin(2 * x[:, :1]) * torch.cos(x[:, 1:]) + 0.3 * x[:, :1] * x[:, 1:]


class Net(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.fc1 = nn.Linear(2, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, 1)
        self.apply(self.init_weights)

    @staticmethod
    def init_weights(module):
        if isinstance(module, nn.Linear):
            nn.init.xavier_normal_(module.weight)
            nn.init.zeros_(module.bias)

    def forward(self, x):
        return self.fc3(torch.tanh(self.fc2(torch.tanh(self.fc1(x)))))


class LBFGSTrainer:
    def __init__(self, net, x, y):
        self.net, self.x, self.y = net, x, y
        self.penalty = args.penalty
        self.calls = 0
        self.optimizer = torch.optim.LBFGS(net.parameters(), lr=args.lr, max_iter=3, history_size=args.history_size)

    def closure(self):
        self.optimizer.zero_grad()
        fit = (self.net(self.x) - self.y).square().mean()
        decay = sum(weight.square().mean() for weight in self.net.parameters() if weight.dim() > 1)
        loss = fit + self.penalty * decay
        loss.backward()
        self.calls += 1
        return loss

    def train(self):
        for step in range(args.steps):
            if step == args.relax_at:
                self.penalty *= 0.1
            loss = self.optimizer.step(self.closure)
            if step % 5 == 0 or step == args.steps - 1:
                print(f"step {step}: objective {loss.item():.6f}, evaluations {self.calls}")


def relative_error(prediction, truth):
    return (torch.linalg.norm(prediction - truth) / torch.linalg.norm(truth)).item()


generator = torch.Generator().manual_seed(10)
x = 4 * torch.rand(args.points, 2, generator=generator) - 2
y = surface(x) + 0.05 * torch.randn(args.points, 1, generator=generator)
net = Net(args.hidden).to(device)
LBFGSTrainer(net, x.to(device), y.to(device)).train()

axis = torch.linspace(-2, 2, 32)
grid = torch.cartesian_prod(axis, axis).to(device)
with torch.no_grad():
    prediction = net(grid)
    truth = surface(grid)
print(f"relative L2 error on the grid: {relative_error(prediction, truth):.5f}")
print(f"largest error on the grid: {(prediction - truth).abs().max().item():.5f}")
np.save("surface.npy", prediction.view(32, 32).cpu().numpy())
