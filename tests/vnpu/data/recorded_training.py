"""Train a small network twice, plain and recorded, and say what is the same: argv has device, precision, folder."""

import contextlib
import json
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode

import torchport

device, precision, folder = sys.argv[1:4]
STEPS = 12


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.attention = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x))).flatten(2).transpose(1, 2)
        x = checkpoint(self.attention, x, use_reentrant=False)
        return self.head(x.mean(1))


class Counting(TorchDispatchMode):
    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


def train(block, count):
    torch.manual_seed(0)
    net = Net().to(device)
    weights, biases = (
        [p for p in net.parameters() if (p.dim() > 1) is wide] for wide in (True, False)
    )
    optimizers = [torch.optim.SGD(weights, 0.05, momentum=0.9), torch.optim.AdamW(biases, 1e-3)]
    losses, calls = [], []
    with block or contextlib.nullcontext():
        for _ in range(STEPS // 2):
            counting = Counting() if count else contextlib.nullcontext()
            with counting:
                for optimizer in optimizers:
                    optimizer.zero_grad()
                for _ in range(2):  # gradients accumulate
                    x, y = torch.randn(4, 3, 8, 8, device=device), torch.randint(0, 5, (4,), device=device)
                    with torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
                        loss = F.cross_entropy(net(x), y)
                    loss.backward()
                for optimizer in optimizers:
                    optimizer.step()
            losses.append(loss.item())
            calls.append(getattr(counting, "calls", 0))
    return losses, [p.detach().cpu() for p in net.parameters()], calls


plain = train(None, True)
counted = train(torchport.record(folder + "-counted"), True)
recorded = train(torchport.record(folder, level="tensor"), False)
print(
    json.dumps(
        {
            "losses": plain[0] == counted[0] == recorded[0],
            "parameters": all(
                torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(plain[1], counted[1], recorded[1], strict=True)
            ),
            "operators": plain[2] == counted[2] and plain[2][0] > 100,
        }
    )
)
