# cause: device.none-visible
# env: ASCEND_RT_VISIBLE_DEVICES=42
import torch

print(torch.ones(2, device="cuda").sum().item())
