"""Contrastive learning with in-batch negatives: two noisy views of a sample attract each other."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Views(Dataset):
    def __init__(self, count=640, size=32):
        rng = np.random.RandomState(4)
        basis = rng.randn(10, size)
        self.samples = (rng.randn(count, 10) @ basis / 3).astype(np.float32)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        sample = torch.from_numpy(self.samples[i])
        return sample + 0.3 * torch.randn_like(sample), sample + 0.3 * torch.randn_like(sample)


class Encoder(nn.Module):
    def __init__(self, size=32, hidden=64, out=16):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(size, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.1))
        self.projector = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, out))

    def forward(self, x):
        features = self.backbone(x)
        return F.normalize(self.projector(features), dim=1)


def info_nce(one, other, temperature):
    logits = one @ other.t() / temperature
    target = torch.arange(len(one), device=one.device)
    return 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target))


def run():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--temperature", type=float, default=0.2)
    args = parser.parse_args()
    torch.manual_seed(17)

    loader = DataLoader(Views(), args.batch_size, shuffle=True, drop_last=True)
    encoder = Encoder().to("cuda")
    optimizer = torch.optim.Adam(encoder.parameters(), lr=args.lr, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs * len(loader))
    for epoch in range(args.epochs):
        encoder.train()
        hits, total = 0, 0.0
        for one, other in loader:
            one, other = encoder(one.to("cuda")), encoder(other.to("cuda"))
            loss = info_nce(one, other, args.temperature)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item()
            nearest = (one @ other.t()).argmax(dim=1)
            hits += (nearest == torch.arange(len(one), device="cuda")).sum().item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}, top-1 {100 * hits / (len(loader) * 64):.1f} %")


if __name__ == "__main__":
    run()
