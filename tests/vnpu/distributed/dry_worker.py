"""A rank of a dry job: DDP on a small model, then collectives of results and of sizes."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.npu.set_device(rank)
dist.init_process_group("hccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024).npu(), device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.ones(8, 1024).npu()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()

uploaded = torch.full((10,), float(rank + 1)).npu()
dist.all_reduce(uploaded)
sizes = [torch.zeros(1, dtype=torch.int64).npu() for _ in range(2)]
dist.all_gather(sizes, torch.tensor([rank + 5]).npu())
objects = [None, None]
dist.all_gather_object(objects, {"rank": rank})
torch.npu.synchronize()
# One write: the ranks share a pipe.
said = f"RESULT {rank} {uploaded.sum().item()} {[int(each) for each in sizes]} {objects}\n"
os.write(1, said.encode())
dist.barrier()
dist.destroy_process_group()
