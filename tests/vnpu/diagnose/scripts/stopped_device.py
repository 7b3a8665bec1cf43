# cause: kernel.aborted
# run: --as-is SCRIPT
import torch
import torch_npu

x = torch.ones(64, 64).npu()
y = x @ x
torch_npu.npu.stop_device(0)
print((y @ x).sum().item())
