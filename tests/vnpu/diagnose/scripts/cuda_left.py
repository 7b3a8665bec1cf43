# cause: script.cuda
# run: --as-is SCRIPT
import torch
from torch import nn

model = nn.Linear(4, 4).to("cuda")
print(model(torch.ones(1, 4, device="cuda")))
