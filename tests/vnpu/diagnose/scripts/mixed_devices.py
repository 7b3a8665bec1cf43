# cause: script.mixed-devices
import torch
from torch import nn

model = nn.Linear(8, 2).cuda()
inputs, target = torch.randn(4, 8), torch.randn(4, 2).cuda()
loss = nn.functional.mse_loss(model(inputs), target)  # inputs stayed on the CPU
loss.backward()
