# cause: memory.device-full
# env: VNPU_HOST_LIMIT=1TiB
import torch

kept = []
for step in range(100):
    x = torch.empty(4 << 30, dtype=torch.uint8, device="cuda")  # 4 GiB a step that nothing lets go
    kept.append(x)
    print("step", step)
