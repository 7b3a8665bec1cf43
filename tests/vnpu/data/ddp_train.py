"""A distributed CUDA script as torchrun starts it."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(backend="nccl")
rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank)
torch.manual_seed(rank)
model = torch.nn.Linear(4, 1).to(device)
model = DistributedDataParallel(model, device_ids=[local_rank], output_device=local_rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.randn(8, 4, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
both = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
dist.all_gather(both, weights)
assert all(torch.equal(each.cpu(), weights.cpu()) for each in both)
assert dist.get_backend() == "nccl" and dist.get_backend() == "hccl"
group = dist.new_group([0, 1], backend="nccl")
assert dist.get_backend(group) == "nccl" and "cuda:nccl" in dist.get_backend_config(group)
total = torch.tensor([rank + 1.0], device=device)
dist.all_reduce(total, group=group)
mesh = dist.init_device_mesh("cuda", (2,))
assert mesh.device_type == "cuda"
mixed = dist.new_group([0, 1], backend="cpu:gloo,cuda:nccl")
on_cpu = torch.tensor([float(rank)])
dist.all_reduce(on_cpu, group=mixed)
dist.barrier()
if rank == 0:
    print("total", total.item(), on_cpu.item(), "devices", torch.cuda.device_count(), flush=True)
dist.destroy_process_group()
