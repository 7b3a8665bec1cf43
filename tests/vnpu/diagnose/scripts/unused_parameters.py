# cause: script.unused-parameters
# env: RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29875
import torch
import torch.distributed as dist
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.used(x)


dist.init_process_group("nccl")
model = nn.parallel.DistributedDataParallel(Net().cuda())
for step in range(2):
    model(torch.randn(2, 4, device="cuda")).sum().backward()
