# cause: environment.libraries
# python
import torch
import torch_npu

print(torch.ones(2).npu())
