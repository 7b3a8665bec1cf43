"""Regression on a table with numbers and categories: R2 and RMSE on held-out rows, their predictions in a file."""

import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def houses(count, seed):
    """Area, age, distance, rooms and district of houses, and their price in thousands."""
    rng = np.random.default_rng(seed)
    area, age = rng.gamma(6.0, 18.0, count), rng.uniform(0, 90, count)
    distance, rooms = rng.exponential(6.0, count), rng.integers(1, 8, count)
    district = rng.integers(0, 6, count)
    price = (
        2.1 * area + 14 * rooms - 0.9 * age + 0.01 * (age - 45) ** 2 - 25 * np.log1p(distance) + 30 * np.sin(district)
    )
    price += 18 * rng.standard_normal(count)
    return np.stack([area, age, distance, rooms], axis=1), district, price


class Scaler:
    def __init__(self, values):
        self.mean, self.std = values.mean(axis=0), values.std(axis=0)

    def transform(self, values):
        return ((values - self.mean) / self.std).astype(np.float32)

    def inverse(self, values):
        return values * self.std + self.mean


class TableNet(nn.Module):
    def __init__(self, numbers=4, districts=6, hidden=48):
        super().__init__()
        self.district = nn.Embedding(districts, 4)
        self.body = nn.Sequential(
            nn.Linear(numbers + 4, hidden), nn.SiLU(), nn.Dropout(0.05), nn.Linear(hidden, hidden)
        )
        self.out = nn.Sequential(nn.SiLU(), nn.Linear(hidden, 1))

    def forward(self, numbers, district):
        x = torch.cat([numbers, self.district(district)], dim=1)
        x = self.body(x)
        return self.out(x).squeeze(1)


def r2_score(truth, prediction):
    residual = ((truth - prediction) ** 2).sum()
    return 1 - residual / ((truth - truth.mean()) ** 2).sum()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--max-lr", type=float, default=0.02)
    args = parser.parse_args()
    torch.manual_seed(50)

    numbers, district, price = houses(640, seed=1)
    x_scaler, y_scaler = Scaler(numbers), Scaler(price)
    train_set = TensorDataset(
        torch.from_numpy(x_scaler.transform(numbers)),
        torch.from_numpy(district),
        torch.from_numpy(y_scaler.transform(price)),
    )
    loader = DataLoader(train_set, args.batch_size, shuffle=True)
    model = TableNet().cuda()
    criterion = nn.SmoothL1Loss(beta=0.5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.max_lr, weight_decay=0.02)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=args.max_lr, epochs=args.epochs, steps_per_epoch=len(loader)
    )
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for x, where, y in loader:
            loss = criterion(model(x.cuda(), where.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item() * len(y)
        print(f"Epoch {epoch + 1:2}/{args.epochs}  huber {total / len(train_set):.5f}")

    numbers, district, price = houses(250, seed=2)
    model.eval()
    with torch.no_grad():
        x = torch.from_numpy(x_scaler.transform(numbers)).cuda()
        scaled = model(x, torch.from_numpy(district).cuda()).cpu().numpy()
    predicted = y_scaler.inverse(scaled)
    rmse = np.sqrt(np.mean((price - predicted) ** 2))
    print(f"R2 {r2_score(price, predicted):.4f}  RMSE {rmse:.3f}  MAE {np.abs(price - predicted).mean():.3f}")
    np.save("predictions.npy", predicted)


if __name__ == "__main__":
    main()
