# cause: device.ordinal
import torch

torch.cuda.set_device(9)
print(torch.ones(2, device="cuda"))
