# cause: launch.master
# env: RANK=1 WORLD_SIZE=2 MASTER_ADDR=trainer-0.invalid MASTER_PORT=29872
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=4))
dist.all_reduce(torch.ones(4, device="cuda"))
