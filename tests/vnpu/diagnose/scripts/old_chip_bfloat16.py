# cause: operator.dtype
# env: VNPU_SOC=Ascend910A
import torch

q = torch.randn(64, 64, device="cuda", dtype=torch.bfloat16)
print((q @ q.t()).softmax(-1).sum().item())
