"""DistributedDataParallel CNN training; launch with: torchrun --standalone --nproc_per_node=2 ddp_cnn.py"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.bn, self.dropout = nn.BatchNorm2d(32), nn.Dropout(0.25)
        self.fc1, self.fc2 = nn.Linear(32 * 7 * 7, 64), nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.bn(self.conv2(x))), 2)
        x = self.dropout(F.relu(self.fc1(x.flatten(1))))
        return F.log_softmax(self.fc2(x), dim=1)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    use_cuda = torch.cuda.is_available()
    if use_cuda:
        torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl" if use_cuda else "gloo")
    device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
    torch.manual_seed(0)

    g = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 10, (160,), generator=g)
    digits = torch.randn(10, 1, 28, 28, generator=g)
    dataset = TensorDataset(digits[targets] + 0.5 * torch.randn(160, 1, 28, 28, generator=g), targets)
    sampler = DistributedSampler(dataset, shuffle=True, seed=0)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)

    model = DDP(Net().to(device), device_ids=[local_rank] if use_cuda else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    sampler.set_epoch(0)
    model.train()
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        loss = F.nll_loss(model(x), y)
        mean_loss = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean_loss)
        if dist.get_rank() == 0:
            print(f"step {step} loss {mean_loss.item():.6f}", flush=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    model.eval()
    with torch.no_grad():
        correct = sum(
            (model.module(x.to(device)).argmax(1).cpu() == y).sum().item() for x, y in DataLoader(dataset, 32)
        )
    if dist.get_rank() == 0:
        print(f"train accuracy {correct / len(dataset):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
