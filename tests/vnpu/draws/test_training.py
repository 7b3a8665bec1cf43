"""Networks with dropout that train on both devices: the same losses, step by step."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

STEPS = 50


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 16, 3, padding=1)
        self.drop = nn.Dropout2d(0.2)
        self.out = nn.Linear(16 * 4, 10)

    def forward(self, x):
        x = functional.max_pool2d(self.norm(self.first(x.view(-1, 1, 8, 8))).relu(), 2)
        x = functional.max_pool2d(self.drop(self.second(x)).relu(), 2)
        return self.out(functional.dropout(x.flatten(1), 0.5, self.training))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16, 2, dropout=0.4, batch_first=True)
        self.out = nn.Linear(16, 10)

    def forward(self, x):
        return self.out(functional.dropout(self.lstm(x.view(-1, 8, 8))[0][:, -1], 0.3, self.training))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True)
        self.embed = nn.Linear(8, 16)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(16, 10)

    def forward(self, x):
        return self.out(self.encoder(self.embed(x.view(-1, 8, 8))).mean(1))


def losses(build, device, rate=1e-3):
    torch.manual_seed(7)
    with torch.device(device):  # the weights are drawn on the device too
        net = build().train()
        prototypes = torch.randn(10, 64)
    optimizer = torch.optim.Adam(net.parameters(), rate)
    found = []
    for _ in range(STEPS):
        target = torch.randint(0, 10, (32,), device=device)
        x = prototypes[target] + torch.randn(32, 64, device=device)
        loss = functional.cross_entropy(net(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return torch.tensor(found)


@pytest.mark.parametrize("build", [Cnn, Lstm, Transformer])
def test_losses_agree_step_by_step(build, draws, told):
    host = losses(build, "cpu")
    device = losses(build, "npu")
    assert (host - device).abs().max() < 1e-4
    assert told == []
    # The comparison would notice a learning rate that is one percent off.
    assert (host - losses(build, "npu", rate=1.01e-3)).abs().max() > 1e-4
