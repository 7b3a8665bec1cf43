"""A siamese network: whether two images of digits show the same one."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __init__(self, images, labels, seed):
        rng = np.random.default_rng(seed)
        self.images = torch.from_numpy((images / 16).astype(np.float32)).unsqueeze(1)
        first = rng.permutation(len(labels))[:640]
        second = []
        for number, index in enumerate(first):
            same = labels == labels[index]
            second.append(rng.choice(np.flatnonzero(same if number % 2 else ~same)))
        self.first, self.second = first, np.array(second)
        self.same = torch.from_numpy((labels[first] == labels[self.second]).astype(np.float32))

    def __len__(self):
        return len(self.first)

    def __getitem__(self, index):
        return self.images[self.first[index]], self.images[self.second[index]], self.same[index]


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU()
        )
        self.embed = nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.Linear(256, 32))

    def once(self, x):
        return self.embed(self.features(x))

    def forward(self, one, other):
        return F.pairwise_distance(self.once(one), self.once(other))


def contrastive_loss(distance, same, margin=1.0):
    pull = same * distance.pow(2)
    push = (1 - same) * (margin - distance).clamp(min=0).pow(2)
    return torch.mean(pull + push)


def main():
    parser = argparse.ArgumentParser(description="Siamese network")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--gamma", type=float, default=0.9)
    args = parser.parse_args()
    torch.manual_seed(8)
    device = torch.device("cuda")

    digits = load_digits()
    train_loader = DataLoader(Pairs(digits.images[:1300], digits.target[:1300], 1), args.batch_size, shuffle=True)
    test_loader = DataLoader(Pairs(digits.images[1000:], digits.target[1000:], 2), 128)
    model = Siamese().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.8)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=args.gamma)

    for epoch in range(args.epochs):
        model.train()
        for one, other, same in train_loader:
            one, other, same = one.to(device), other.to(device), same.to(device)
            optimizer.zero_grad()
            loss = contrastive_loss(model(one, other), same)
            loss.backward()
            optimizer.step()
            scheduler.step()
        print(f"Epoch {epoch}: loss {loss.item():.5f}")

    model.eval()
    correct = 0
    with torch.no_grad():
        for one, other, same in test_loader:
            guess = (model(one.to(device), other.to(device)) < 0.5).float().cpu()
            correct += (guess == same).sum().item()
    print(f"pairs told right: accuracy {100 * correct / len(test_loader.dataset):.1f} %")


if __name__ == "__main__":
    main()
