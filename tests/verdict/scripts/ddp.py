"""Data-parallel training: one process per GPU, started by torchrun."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class ToyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(48, 3)

    def forward(self, x):
        return self.head(self.body(x))


def spirals(count):
    """Three spiral arms, their coordinates as waves of several frequencies."""
    generator = torch.Generator().manual_seed(3)
    arm = torch.randint(3, (count,), generator=generator)
    radius = torch.rand(count, generator=generator)
    angle = 4 * radius + 2.1 * arm + 0.2 * torch.randn(count, generator=generator)
    plane = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    waves = [(factor * plane).sin() for factor in (1, 2, 3, 4, 5, 6)]
    return TensorDataset(torch.cat(waves, dim=1), arm)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=40)
    parser.add_argument("--lr", type=float, default=0.2)
    args = parser.parse_args()

    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    torch.cuda.set_device(local_rank)
    dist.init_process_group(backend="nccl")
    torch.manual_seed(100 + dist.get_rank())

    data = spirals(800)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    model = DDP(ToyNet().cuda(local_rank), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.6)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            x, y = x.cuda(local_rank), y.cuda(local_rank)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
            loss.backward()
            optimizer.step()
        scheduler.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} last loss {mean.item() / dist.get_world_size():.4f}")

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
