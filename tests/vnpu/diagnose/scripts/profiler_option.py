# cause: profiler.use-npu
# run: --as-is SCRIPT
import torch

with torch.autograd.profiler.profile(use_npu=True) as prof:
    torch.ones(4).npu().sum().item()
print(prof.key_averages())
