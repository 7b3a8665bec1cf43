"""DistributedDataParallel between two ranks, under torchrun: level 1, text and database. PROFILED_RANK: that one alone."""

import contextlib
import os
import sys

import torch
import torch.distributed as dist
import torch_npu

P = torch_npu.profiler
rank = int(os.environ["RANK"])
torch.npu.set_device(rank)
dist.init_process_group("hccl")
torch.manual_seed(0)
layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)).npu()
model = torch.nn.parallel.DistributedDataParallel(layers, device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(32, 64).npu(), torch.randint(0, 10, (32,)).npu()
config = P._ExperimentalConfig(profiler_level=P.ProfilerLevel.Level1, export_type=[P.ExportType.Text, P.ExportType.Db])
watched = os.environ.get("PROFILED_RANK", str(rank)) == str(rank)
profile = P.profile(
    activities=[P.ProfilerActivity.CPU, P.ProfilerActivity.NPU],
    schedule=P.schedule(wait=0, warmup=1, active=2, repeat=1, skip_first=0),
    record_shapes=True,
    experimental_config=config,
    on_trace_ready=P.tensorboard_trace_handler(sys.argv[1]),
)
with profile if watched else contextlib.nullcontext() as profiler:
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()
        if watched:
            profiler.step()
dist.barrier()
dist.destroy_process_group()
