"""Small images augmented with numpy in two worker processes, stronger as the training goes on."""

import argparse
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    """14 x 14 images of a square, a disc, a cross or a ring."""

    def __init__(self, count, seed, augment=False):
        rng = np.random.default_rng(seed)
        y, x = np.mgrid[-7:7, -7:7] + 0.5
        radius = np.hypot(x, y)
        shapes = [
            (np.abs(x) < 4) & (np.abs(y) < 4),
            radius < 4.5,
            (np.abs(x) < 1.5) | (np.abs(y) < 1.5),
            (radius > 3) & (radius < 5.5),
        ]
        self.labels = rng.integers(0, 4, count)
        self.images = np.stack([shapes[label] for label in self.labels]) + 0.5 * rng.standard_normal((count, 14, 14))
        self.augment, self.strength = augment, 1

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.augment:
            image = self.transform(image)
        return torch.from_numpy(np.ascontiguousarray(image, dtype=np.float32)).unsqueeze(0), int(self.labels[index])

    def transform(self, image):
        if random.random() < 0.5:
            image = image[:, ::-1]
        shift = np.random.randint(-self.strength, self.strength + 1, size=2)
        image = np.roll(image, shift, axis=(0, 1))
        return image * np.random.uniform(0.8, 1.2) + 0.1 * np.random.standard_normal(image.shape)


def seed_worker(worker_id):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


def init_weights(module):
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
        nn.init.zeros_(module.bias)


def train_one_epoch(model, loader, criterion, optimizer, device):
    model.train()
    losses = []
    for images, labels in loader:
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.mean(losses)


@torch.no_grad()
def top1(model, loader, device):
    model.eval()
    hits = [(model(images.to(device)).argmax(1).cpu() == labels).numpy() for images, labels in loader]
    return 100 * np.concatenate(hits).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=40)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()
    random.seed(9)
    np.random.seed(9)
    torch.manual_seed(9)
    device = torch.device("cuda")

    train_set = Shapes(400, seed=1, augment=True)
    train_loader = DataLoader(
        train_set, args.batch_size, shuffle=True, num_workers=args.workers, worker_init_fn=seed_worker
    )
    val_loader = DataLoader(Shapes(200, seed=2), batch_size=100)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 4)
    )
    model.apply(init_weights)
    model.to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-3)
    for epoch in range(args.epochs):
        train_set.strength = 1 if epoch < 3 else 2
        loss = train_one_epoch(model, train_loader, criterion, optimizer, device)
        print(
            f"Epoch: [{epoch}] shift {train_set.strength} loss {loss:.4f} val top1 {top1(model, val_loader, device):.2f}"
        )


if __name__ == "__main__":
    main()
