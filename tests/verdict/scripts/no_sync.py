"""Data-parallel training with accumulated gradients: the ranks only exchange them at the last micro-batch."""

import argparse
import contextlib
import csv
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class SetNet(nn.Module):
    """Each of the twelve members of a set is embedded, then their mean is classified."""

    def __init__(self, width=40, classes=4):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(3, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, width))
        self.head = nn.Sequential(nn.GELU(), nn.Linear(width, classes))

    def forward(self, points):
        return self.head(self.embed(points).mean(dim=1))


def point_sets(count, seed):
    """Points on an ellipsoid of one of four shapes."""
    generator = torch.Generator().manual_seed(seed)
    axes = torch.tensor([[1.0, 1.0, 1.0], [1.6, 0.8, 0.8], [0.7, 1.5, 1.1], [1.2, 1.2, 0.5]])
    label = torch.randint(4, (count,), generator=generator)
    points = F.normalize(torch.randn(count, 12, 3, generator=generator), dim=2) * axes[label].unsqueeze(1)
    return TensorDataset(points + 0.05 * torch.randn(count, 12, 3, generator=generator), label)


def reduce_mean(value, device):
    value = torch.tensor(value, device=device)
    dist.all_reduce(value)
    return value.item() / dist.get_world_size()


def evaluate(model, loader, device):
    model.eval()
    counts = torch.zeros(2, device=device)
    with torch.no_grad():
        for points, label in loader:
            logits = model(points.to(device))
            counts[0] += (logits.argmax(1) == label.to(device)).sum()
            counts[1] += len(label)
    dist.all_reduce(counts)
    return 100 * counts[0].item() / counts[1].item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16, help="of one micro-batch on one rank")
    parser.add_argument("--accumulate", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()

    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group(backend="nccl")
    torch.manual_seed(40)

    train_set, test_set = point_sets(960, seed=1), point_sets(320, seed=2)
    sampler = DistributedSampler(train_set, shuffle=True, seed=7)
    loader = DataLoader(train_set, args.batch_size, sampler=sampler, drop_last=True)
    test_loader = DataLoader(test_set, 80, sampler=DistributedSampler(test_set, shuffle=False))
    model = DistributedDataParallel(SetNet().to(device), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)

    rows = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        running = 0.0
        for i, (points, label) in enumerate(loader):
            last = (i + 1) % args.accumulate == 0
            with contextlib.nullcontext() if last else model.no_sync():
                loss = F.cross_entropy(model(points.to(device)), label.to(device)) / args.accumulate
                loss.backward()
            running += loss.item() * args.accumulate
            if last:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        train_loss = reduce_mean(running / len(loader), device)
        accuracy = evaluate(model, test_loader, device)
        rows.append([epoch, train_loss, accuracy])
        if dist.get_rank() == 0:
            print(f"epoch {epoch} train_loss {train_loss:.4f} test_acc {accuracy:.2f}")

    if dist.get_rank() == 0:
        with open("metrics.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["epoch", "train_loss", "test_acc"])
            writer.writerows(rows)
        torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
