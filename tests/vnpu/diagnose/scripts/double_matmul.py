# cause: operator.dtype
import torch

a = torch.randn(16, 16, device="cuda", dtype=torch.float64)
print((a @ a).sum().item())
