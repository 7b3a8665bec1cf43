# cause: script.shapes
import torch

logits = torch.randn(16, 10, device="cuda", requires_grad=True)
bias = torch.randn(12, 1, device="cuda")
(logits + bias).sum().backward()
