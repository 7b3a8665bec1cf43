# cause: script.module
import torch
import deepspeed_kernels_of_ours

print(torch.ones(2).cuda())
