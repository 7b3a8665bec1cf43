"""A perceptron of three layers: small operators alone."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)).cuda()
optimizer = torch.optim.Adam(net.parameters())
for _ in range(60):
    x, y = torch.randn(64, 64).cuda(), torch.randint(0, 10, (64,)).cuda()
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
