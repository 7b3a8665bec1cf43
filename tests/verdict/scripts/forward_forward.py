"""Forward-forward: each layer has a goodness of its own and an optimizer of its own; nothing flows back."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 10


def with_label(x, y):
    """The image, its first ten pixels replaced by the label."""
    x = x.clone()
    x[:, :CLASSES] = 0.0
    x[torch.arange(len(x)), y] = 1.0
    return x


class Layer(nn.Linear):
    def __init__(self, inputs, outputs, lr, threshold=1.0):
        super().__init__(inputs, outputs)
        self.threshold = threshold
        self.optimizer = torch.optim.Adam(self.parameters(), lr=lr, weight_decay=1e-4)

    def forward(self, x):
        direction = x / (x.norm(2, dim=1, keepdim=True) + 1e-4)
        return torch.relu(super().forward(direction))

    def learn(self, positive, negative):
        good = self.forward(positive).pow(2).mean(1)
        bad = self.forward(negative).pow(2).mean(1)
        loss = F.softplus(self.threshold - good).mean() + F.softplus(bad - self.threshold).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return self.forward(positive).detach(), self.forward(negative).detach(), loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    torch.manual_seed(1234)
    digits = load_digits()
    x = torch.tensor(digits.data / 16, dtype=torch.float32)
    y = torch.tensor(digits.target)
    loader = DataLoader(TensorDataset(x[:1500], y[:1500]), batch_size=100, shuffle=True)

    layers = nn.ModuleList([Layer(64, 80, args.lr), Layer(80, 80, args.lr)])
    layers.cuda()
    for _ in range(args.epochs):
        for images, labels in loader:
            images, labels = images.cuda(), labels.cuda()
            wrong = (labels + torch.randint(1, CLASSES, labels.shape, device="cuda")) % CLASSES
            positive, negative = with_label(images, labels), with_label(images, wrong)
            for layer in layers:
                positive, negative, loss = layer.learn(positive, negative)

    test = x[1500:].cuda()
    goodness = []
    with torch.no_grad():
        for label in range(CLASSES):
            h = with_label(test, torch.full((len(test),), label, device="cuda"))
            total = torch.zeros(len(test), device="cuda")
            for layer in layers:
                h = layer(h)
                total = total + h.pow(2).mean(1)
            goodness.append(total)
    guess = torch.stack(goodness, 1).argmax(1)
    print(f"last loss {loss:.4f}")
    print(f"test accuracy {100 * (guess.cpu() == y[1500:]).float().mean().item():.1f} %")


if __name__ == "__main__":
    main()
