import datetime, os, torch, torch.distributed as dist, torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

square = torch.compile(torch.square)  # as torchtitan: compiled before the processes meet, and a timeout that is set later
dist.init_process_group("nccl")
r = int(os.environ["LOCAL_RANK"]); torch.cuda.set_device(r); torch.manual_seed(0)
dist.distributed_c10d._set_pg_timeout(datetime.timedelta(minutes=5), dist.group.WORLD)
m = DDP(nn.Linear(8, 2).cuda(), device_ids=[r]); o = torch.optim.SGD(m.parameters(), 0.1)
for i in range(6):
    l = square(m(torch.randn(4, 8).cuda())).mean(); o.zero_grad(); l.backward(); o.step()
dist.destroy_process_group()
