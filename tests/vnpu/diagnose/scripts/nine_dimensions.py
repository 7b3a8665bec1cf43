# cause: operator.dimensions
import torch

x = torch.randn(*[2] * 9, device="cuda")
print((x + 1).sum().item())
