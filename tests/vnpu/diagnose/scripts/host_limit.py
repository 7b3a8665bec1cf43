# cause: memory.virtual-host-limit
# env: VNPU_HOST_LIMIT=64MiB
import torch

parts = [torch.ones(1 << 22, device="cuda") for _ in range(64)]
print(sum(part.sum().item() for part in parts))
