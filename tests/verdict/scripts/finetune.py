"""Fine-tune a backbone whose weights come from a file: first the head alone, then the backbone at a smaller rate."""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

MEAN, STD = 0.45, 0.25


class Backbone(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(1, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.pool = nn.AdaptiveAvgPool2d(2)

    def forward(self, x):
        return self.pool(self.layer2(self.layer1(x))).flatten(1)


class Classifier(nn.Module):
    def __init__(self, classes, width=16):
        super().__init__()
        self.backbone = Backbone(width)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x):
        features = self.backbone(x)
        return self.head(self.drop(features))


def write_pretrained(path):
    """Stands for a download: oriented edge filters, and a head for ten other classes, as saved from DataParallel."""
    generator = torch.Generator().manual_seed(2020)
    model = Classifier(classes=10)
    with torch.no_grad():
        angle = torch.arange(16) * torch.pi / 8
        grid = torch.tensor([-1.0, 0.0, 1.0])
        filters = angle.cos()[:, None, None] * grid + angle.sin()[:, None, None] * grid[:, None]
        model.backbone.layer1[0].weight.copy_(0.4 * filters.unsqueeze(1))
        weight = model.backbone.layer2[0].weight
        weight.copy_(0.12 * torch.randn(weight.shape, generator=generator))
    torch.save({"state_dict": {f"module.{name}": value for name, value in model.state_dict().items()}}, path)


def load_pretrained(model, path):
    state = torch.load(path, map_location="cpu")["state_dict"]
    state = {name.removeprefix("module."): value for name, value in state.items()}
    state = {name: value for name, value in state.items() if not name.startswith("head.")}
    missing, unexpected = model.load_state_dict(state, strict=False)
    print(f"loaded {path}: {len(missing)} missing, {len(unexpected)} unexpected")


def textures(count, seed):
    """Images of three textures between 0 and 1."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    y, x = np.mgrid[0:12, 0:12]
    patterns = np.stack([np.sin(1.6 * x), np.sin(1.6 * y), np.sin(1.1 * (x + y))])
    images = 0.45 + 0.18 * patterns[labels] + 0.25 * rng.standard_normal((count, 12, 12))
    return images.clip(0, 1).astype(np.float32), labels


def make_loader(count, seed, shuffle):
    images, labels = textures(count, seed)
    images = (torch.from_numpy(images).unsqueeze(1) - MEAN) / STD
    return DataLoader(TensorDataset(images, torch.from_numpy(labels)), batch_size=32, shuffle=shuffle)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pretrained", default="backbone.pth")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--unfreeze-at", type=int, default=2, help="the epoch from which the backbone is trained")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--backbone-lr", type=float, default=0.01)
    args = parser.parse_args()
    torch.manual_seed(23)
    if not Path(args.pretrained).exists():
        write_pretrained(args.pretrained)
    device = torch.device("cuda:0")

    model = Classifier(classes=3)
    load_pretrained(model, args.pretrained)
    model.to(device)
    train_loader, test_loader = make_loader(384, 1, shuffle=True), make_loader(160, 2, shuffle=False)
    groups = [
        {"params": model.backbone.parameters(), "lr": args.backbone_lr},
        {"params": model.head.parameters(), "lr": args.lr},
    ]
    optimizer = torch.optim.SGD(groups, momentum=0.9, weight_decay=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        model.train()
        model.backbone.requires_grad_(epoch >= args.unfreeze_at)
        for images, labels in train_loader:
            loss = criterion(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            hits = [model(images.to(device)).argmax(1).cpu().eq(labels) for images, labels in test_loader]
        print(f"epoch {epoch}: loss {loss.item():.4f}, top-1 {100 * torch.cat(hits).float().mean().item():.2f}")
    torch.save(model.state_dict(), "finetuned.pth")


if __name__ == "__main__":
    main()
