# cause: kernel.vector
import torch
from torch import nn

logits = torch.randn(8, 10, device="cuda", requires_grad=True)
target = torch.tensor([0, 1, 2, 3, 4, 5, 10, 11], device="cuda")
loss = nn.functional.cross_entropy(logits, target)
loss.backward()
print(loss.item())
