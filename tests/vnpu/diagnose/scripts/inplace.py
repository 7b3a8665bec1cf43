# cause: script.inplace
import torch

x = torch.randn(4, 4, device="cuda", requires_grad=True)
y = x.sigmoid()
z = y * y
y += 1
z.sum().backward()
