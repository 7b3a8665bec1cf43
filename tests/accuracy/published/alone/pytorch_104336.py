import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def offload_and_reload(ddp, core, dev, naive):
    """Free the device for another job, then take the model back."""
    if naive:
        ddp.cpu()
        ddp.to(dev)
        return ddp
    del ddp
    core.cpu()
    core.to(dev)
    return DDP(core, device_ids=[dev.index])


def build():
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(6, 12, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(12 * 9, 3),
    )


def run(naive):
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    dev = torch.device("cuda", rank)
    torch.manual_seed(0)
    xs = torch.randn(256, 1, 16, 16)
    ys = (xs[:, 0, :8].mean((1, 2)) > 0).long() + (xs[:, 0, 8:].mean((1, 2)) > 0).long()
    ds = TensorDataset(xs, ys)
    sampler = DistributedSampler(ds, shuffle=True, seed=3)
    loader = DataLoader(ds, batch_size=16, sampler=sampler)

    core = build().to(dev)
    model = DDP(core, device_ids=[rank])
    opt = torch.optim.SGD(core.parameters(), lr=0.1)
    lossfn = nn.CrossEntropyLoss()
    for epoch in range(4):  # 8 iterations each
        sampler.set_epoch(epoch)
        if epoch == 2:
            model = offload_and_reload(model, core, dev, naive)
        tot = 0.0
        for x, y in loader:
            opt.zero_grad()
            loss = lossfn(model(x.to(dev)), y.to(dev))
            loss.backward()
            opt.step()
            tot += loss.item()
        print(f"[rank {rank}] epoch {epoch} loss {tot / len(loader):.4f}", flush=True)
    cs = sum(p.detach().abs().sum() for p in core.parameters()).item()
    print(f"[rank {rank}] checksum {cs:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    run("--fault" in sys.argv)
