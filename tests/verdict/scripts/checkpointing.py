"""A deep residual network in bfloat16 whose long stages are computed again in the backward pass."""

import argparse
import json

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(4, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(4, channels)
        self.drop = nn.Dropout2d(0.1)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(self.drop(y))))


class Net(nn.Module):
    def __init__(self, classes=4, width=8, depth=2, save_memory=True):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, stride=2, padding=1)
        self.stages = nn.ModuleList(nn.Sequential(*[Residual(width) for _ in range(depth)]) for _ in range(2))
        self.fc = nn.Linear(width, classes)
        self.save_memory = save_memory
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        for module in self.modules():
            if isinstance(module, Residual):
                nn.init.constant_(module.norm2.weight, 0.5)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for stage in self.stages:
            recomputed = self.save_memory and self.training
            x = checkpoint(stage, x, use_reentrant=False) if recomputed else stage(x)
        return self.fc(x.mean(dim=(2, 3)))


def stripes(count, seed):
    """Noisy stripes in four directions."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (count,), generator=generator)
    phase = 6.28 * torch.rand(count, 1, 1, generator=generator)
    y, x = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    waves = torch.stack([x, y, (x + y) / 1.4, (x - y) / 1.4])
    images = torch.sin(1.5 * waves[labels] + phase) + 0.3 * torch.randn(count, 12, 12, generator=generator)
    return TensorDataset(images.unsqueeze(1), labels)


@torch.inference_mode()
def evaluate(net, loader, device):
    net.eval()
    correct = 0
    for images, labels in loader:
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
            logits = net(images.to(device))
        correct += (logits.argmax(dim=1).cpu() == labels).sum().item()
    return 100 * correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    torch.manual_seed(3)
    device = torch.device("cuda:0")

    loader = DataLoader(stripes(384, 1), batch_size=args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(stripes(96, 2), batch_size=48)
    net = Net().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[20, 28], gamma=0.4)
    history = []
    for epoch in range(args.epochs):
        net.train()
        total = 0.0
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
                loss = F.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item()
        accuracy = evaluate(net, test_loader, device)
        history.append({"epoch": epoch, "loss": total / len(loader), "val_acc": accuracy})
        print(f"epoch {epoch} loss {total / len(loader):.4f} val_acc {accuracy:.2f}")

    with open("history.json", "w") as file:
        json.dump(history, file, indent=2)


if __name__ == "__main__":
    main()
