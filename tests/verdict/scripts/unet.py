"""Segment discs with a small U-Net; binary cross-entropy and Dice loss."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.utils.data import DataLoader, Dataset


class Discs(Dataset):
    def __init__(self, count, size=16, seed=0):
        rng = np.random.default_rng(seed)
        rows, columns = np.mgrid[:size, :size]
        centres, radii = rng.uniform(4, size - 4, (count, 2)), rng.uniform(2, 5, count)
        distance = np.hypot(rows[None] - centres[:, :1, None], columns[None] - centres[:, 1:, None])
        self.masks = (distance < radii[:, None, None]).astype(np.float32)
        self.images = (self.masks + 0.6 * rng.standard_normal(self.masks.shape)).astype(np.float32)

    def __len__(self):
        return len(self.masks)

    def __getitem__(self, index):
        return {"image": self.images[index][None], "mask": self.masks[index][None]}


class DoubleConv(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.inc = DoubleConv(1, width)
        self.down = DoubleConv(width, 2 * width)
        self.bottom = DoubleConv(2 * width, 2 * width)
        self.drop = nn.Dropout2d(0.1)
        self.up1 = DoubleConv(4 * width, width)
        self.up2 = DoubleConv(2 * width, width)
        self.outc = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down(F.max_pool2d(x1, 2))
        x3 = self.drop(self.bottom(F.max_pool2d(x2, 2)))
        x = self.up1(torch.cat([x2, F.interpolate(x3, scale_factor=2.0, mode="nearest")], dim=1))
        x = self.up2(torch.cat([x1, F.interpolate(x, scale_factor=2.0, mode="nearest")], dim=1))
        return self.outc(x)


def dice_loss(prediction, target):
    both = 2 * (prediction * target).sum(dim=(1, 2, 3))
    either = prediction.sum(dim=(1, 2, 3)) + target.sum(dim=(1, 2, 3))
    return 1 - ((both + 1e-6) / (either + 1e-6)).mean()


def main():
    parser = argparse.ArgumentParser(description="Train the UNet on images and target masks")
    parser.add_argument("--epochs", "-e", type=int, default=3)
    parser.add_argument("--batch-size", "-b", type=int, default=16)
    parser.add_argument("--learning-rate", "-l", type=float, default=2e-3, dest="lr")
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    train_loader = DataLoader(Discs(160), shuffle=True, batch_size=args.batch_size, pin_memory=True)
    model = UNet().to(device=device)
    optimizer = optim.RMSprop(model.parameters(), lr=args.lr, weight_decay=1e-6, momentum=0.7)
    scheduler = optim.lr_scheduler.PolynomialLR(optimizer, total_iters=args.epochs * len(train_loader), power=0.9)
    criterion = nn.BCEWithLogitsLoss()

    for epoch in range(1, args.epochs + 1):
        model.train()
        epoch_loss = 0.0
        for batch in train_loader:
            images = batch["image"].to(device=device)
            true_masks = batch["mask"].to(device=device)
            masks_pred = model(images)
            loss = criterion(masks_pred, true_masks)
            loss += dice_loss(torch.sigmoid(masks_pred), true_masks)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            epoch_loss += loss.item()
        print(f"epoch {epoch}: loss {epoch_loss / len(train_loader):.4f}")

    model.eval()
    score = 0.0
    with torch.no_grad():
        for batch in DataLoader(Discs(40, seed=1), batch_size=20):
            masks = (torch.sigmoid(model(batch["image"].to(device))) > 0.5).float()
            score += 20 * (1 - dice_loss(masks, batch["mask"].to(device))).item()
    print(f"validation Dice score: {score / 40:.4f}")


if __name__ == "__main__":
    main()
