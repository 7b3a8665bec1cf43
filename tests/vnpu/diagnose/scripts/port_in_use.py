# cause: launch.port
# env: RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29871
import socket

import torch
import torch.distributed as dist

held = socket.create_server(("", 29871))  # another job
dist.init_process_group("nccl")
dist.all_reduce(torch.ones(4, device="cuda"))
