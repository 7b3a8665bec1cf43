# cause: script.backward-twice
import torch

w = torch.randn(4, 4, device="cuda", requires_grad=True)
loss = (w @ w).exp().sum()
loss.backward()
loss.backward()
