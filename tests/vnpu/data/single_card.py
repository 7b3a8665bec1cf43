"""A script for one GPU, as people write it: one function makes both loaders, DataParallel where there are more."""

import argparse

import torch
from torch import nn
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", type=int, default=0)
args = parser.parse_args()
device = torch.device(f"cuda:{args.gpu}" if torch.cuda.is_available() else "cpu")
torch.cuda.set_device(args.gpu)
torch.manual_seed(0)


def make_loader(train):
    data = TensorDataset(torch.randn(24, 4), torch.randn(24, 1))
    return DataLoader(data, batch_size=4, shuffle=train)


def step(net, batch, optimizer=None):
    x, y = (part.cuda(args.gpu, non_blocking=True) for part in batch)
    with autocast():
        loss = nn.functional.mse_loss(net(x), y)
    if optimizer is not None:
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return loss.item()


train_loader, test_loader = make_loader(True), make_loader(False)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
if torch.cuda.device_count() > 1:
    net = nn.DataParallel(net)
net.to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = GradScaler()
for epoch in range(2):
    for batch in train_loader:
        step(net, batch, optimizer)
    for batch in test_loader:
        step(net, batch)
    print(epoch, len(train_loader), len(test_loader))
weights = torch.cat([parameter.detach().flatten() for parameter in net.parameters()])
print("on", weights.device, "finite", bool(weights.isfinite().all()))
