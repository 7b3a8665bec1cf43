# cause: script.mixed-devices
import torch

weights = torch.ones(4, 4, device="cuda")
mask = torch.rand(4, 4) > 0.5
scores = torch.randn(4, 4)
print((weights * scores)[mask].sum())
