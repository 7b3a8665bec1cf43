# cause: collective.contiguous
# env: RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29874
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
x = torch.randn(8, 8, device="cuda").t()[::2]
dist.broadcast(x, 0)
torch.cuda.synchronize()
