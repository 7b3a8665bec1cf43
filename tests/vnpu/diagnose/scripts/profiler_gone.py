# cause: profiler.removed
# run: --as-is SCRIPT
import torch

with torch.npu.profile("trace"):
    torch.ones(4).npu().sum().item()
