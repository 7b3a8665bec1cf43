"""Training as PyTorch's examples write it: device and data order from torch.accelerator."""

import json
import sys

import torch
from torch import nn

use_accelerator = torch.accelerator.is_available()
device = torch.accelerator.current_accelerator() if use_accelerator else torch.device("cpu")
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
options = {"shuffle": True, "pin_memory": True} if use_accelerator else {}
loader = torch.utils.data.DataLoader(data, batch_size=8, **options)
net = nn.Linear(8, 1).to(device)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
losses = []
for x, y in loader:
    loss = (net(x.to(device)) - y.to(device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
json.dump({"losses": losses, "shuffled": bool(options)}, sys.stdout)
