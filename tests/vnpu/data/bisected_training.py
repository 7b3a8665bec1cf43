"""A training whose NPU computes some operators wrongly, or is given other data: `bisected_training.py FAULTS`."""

import sys

import torch
from torch import nn

KERNELS = {
    "silu": lambda x: x * torch.sigmoid(x) * 1.02,
    "relu": lambda x: x.clamp(min=0.05),
    "gelu_backward": lambda gradient, x, approximate="none": gradient * 0.9,
}

faults = sys.argv[1].split(",")
on_npu = hasattr(torch, "npu")
library = torch.library.Library("aten", "IMPL")
for name in KERNELS.keys() & set(faults) if on_npu else ():
    library.impl(name, KERNELS[name], "PrivateUse1")
torch.manual_seed(0)
first = [
    nn.Conv2d(3, 8, 3),
    nn.BatchNorm2d(8),
    nn.SiLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(8 * 7 * 7, 32),
]
model = nn.Sequential(*first, nn.ReLU(), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 5)).to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
draws = torch.Generator().manual_seed(1)
for _ in range(6):
    x, y = torch.randn(8, 3, 16, 16, generator=draws), torch.randint(0, 5, (8,), generator=draws)
    if on_npu and "data" in faults:
        x = x.flip(-1)  # a factor would be taken out by the normalisation
    loss = nn.functional.cross_entropy(model(x.to("cuda")), y.to("cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
