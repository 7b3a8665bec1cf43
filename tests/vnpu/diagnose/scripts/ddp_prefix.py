# cause: checkpoint.keys
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).cuda()
saved = {f"module.{name}": value for name, value in model.state_dict().items()}
model.load_state_dict(saved)
