# cause: script.shapes
import torch
from torch import nn

net = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 32), nn.ReLU(), nn.Linear(64, 10)).cuda()
net(torch.randn(4, 1, 28, 28, device="cuda")).sum().backward()
