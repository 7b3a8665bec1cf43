"""An MLP-mixer on small images, compiled with torch.compile."""

import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Mixer(nn.Module):
    def __init__(self, patches=16, channels=12, classes=4):
        super().__init__()
        self.embed = nn.Linear(4, channels)
        self.norm1 = nn.LayerNorm(channels)
        self.tokens = nn.Sequential(nn.Linear(patches, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, patches))
        self.norm2 = nn.LayerNorm(channels)
        self.channels = nn.Sequential(nn.Linear(channels, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, channels))
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.embed(x)
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.channels(self.norm2(x))
        return self.head(x.mean(dim=1))


def stripes(count):
    """8 x 8 images of stripes in four directions, cut into 2 x 2 patches."""
    kind = torch.randint(4, (count,))
    row, column = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    ramps = torch.stack([row, column, row + column, row - column])
    phase = 6.3 * torch.rand(count, 1, 1)
    images = (1.3 * ramps[kind] + phase).sin() + 0.3 * torch.randn(count, 8, 8)
    patches = images.unfold(1, 2, 2).unfold(2, 2, 2).reshape(count, 16, 4)
    return TensorDataset(patches, kind)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--weight-decay", type=float, default=0.02)
    args = parser.parse_args()
    torch.manual_seed(33)
    torch.backends.cuda.matmul.allow_tf32 = False

    train_loader = DataLoader(stripes(640), batch_size=64, shuffle=True)
    test_loader = DataLoader(stripes(128), batch_size=64)
    model = Mixer().cuda()
    compiled = torch.compile(model)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=args.lr, total_steps=args.epochs * len(train_loader)
    )

    for epoch in range(args.epochs):
        compiled.train()
        for patches, kind in train_loader:
            loss = loss_fn(compiled(patches.cuda()), kind.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")

    compiled.eval()
    correct = 0
    with torch.no_grad():
        for patches, kind in test_loader:
            correct += (compiled(patches.cuda()).argmax(1).cpu() == kind).sum().item()
    print(f"accuracy {100 * correct / 128:.1f} %")


if __name__ == "__main__":
    main()
