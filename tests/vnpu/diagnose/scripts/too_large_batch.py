# cause: host.allocation
import torch
from torch import nn

model = nn.Linear(1 << 20, 1 << 16).cuda()  # 256 GiB of weights
print(model(torch.randn(8, 1 << 20, device="cuda")).sum().item())
