"""A small vision transformer with an auxiliary head, gradient clipping and an average of the weights."""

import argparse
import copy

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class ViT(nn.Module):
    def __init__(self, patch=4, width=24, classes=6):
        super().__init__()
        self.patchify = nn.Conv2d(1, width, patch, patch)
        self.position = nn.Parameter(0.02 * torch.randn(1, 16, width))
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(width, classes)
        self.auxiliary = nn.Linear(width, 1)

    def forward(self, image):
        x = self.patchify(image).flatten(2).transpose(1, 2) + self.position
        normed = self.norm(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        x = x + self.drop(self.mlp(x))
        pooled = x.mean(dim=1)
        return self.head(pooled), self.auxiliary(pooled).squeeze(1)


class EMA:
    def __init__(self, model, decay):
        self.shadow = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for average, value in zip(self.shadow.parameters(), model.parameters(), strict=True):
            average.lerp_(value, 1 - self.decay)


def crosses(count):
    """16 x 16 images with a cross; the class is its size, the auxiliary target its brightness."""
    size = torch.randint(6, (count,))
    bright = 0.5 + torch.rand(count)
    images = 0.3 * torch.randn(count, 1, 16, 16)
    for image, half, value in zip(images, (size + 2).tolist(), bright.tolist(), strict=True):
        image[0, 8 - half : 8 + half, 7:9] += value
        image[0, 7:9, 8 - half : 8 + half] += value
    return TensorDataset(images, size, bright)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--ema", type=float, default=0.9)
    parser.add_argument("--clip", type=float, default=1.0)
    args = parser.parse_args()
    torch.manual_seed(77)
    device = torch.device("cuda", 0)

    train_loader = DataLoader(crosses(480), batch_size=48, shuffle=True)
    test_loader = DataLoader(crosses(96), batch_size=48)
    model = ViT().to(device)
    ema = EMA(model, args.ema)
    classify = nn.CrossEntropyLoss(label_smoothing=0.1)
    regress = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, betas=(0.9, 0.98), weight_decay=1e-4)

    for epoch in range(args.epochs):
        model.train()
        for images, size, bright in train_loader:
            images, size, bright = images.to(device), size.to(device), bright.to(device)
            logits, guess = model(images)
            loss = classify(logits, size) + 0.5 * regress(guess, bright)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            ema.update(model)
        print(f"epoch {epoch} loss {loss.item():.4f}")

    correct = 0
    with torch.no_grad():
        for images, size, _ in test_loader:
            logits, _ = ema.shadow(images.to(device))
            correct += logits.argmax(1).cpu().eq(size).sum().item()
    print(f"accuracy of the averaged weights: {100 * correct / 96:.1f} %")


if __name__ == "__main__":
    main()
