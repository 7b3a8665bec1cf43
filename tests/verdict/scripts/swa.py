"""Stochastic weight averaging on images of glyphs, with the statistics of batch normalisation updated."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(16)
        self.fc = nn.Linear(16 * 9, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(x.flatten(1))


def glyphs(count, seed, classes=6):
    """12 x 12 images: a random glyph for each class, shifted and noisy."""
    shapes = (torch.rand(classes, 9, 9, generator=torch.Generator().manual_seed(31)) > 0.6).float()
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator)
    images = 0.7 * torch.randn(count, 1, 12, 12, generator=generator)
    corners = torch.randint(4, (count, 2), generator=generator).tolist()
    for image, label, (top, left) in zip(images, labels, corners, strict=True):
        image[0, top : top + 9, left : left + 9] += shapes[label]
    return TensorDataset(images, labels)


@torch.no_grad()
def test(model, loader, device):
    model.eval()
    loss, correct = 0.0, 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        logits = model(images)
        loss += F.cross_entropy(logits, labels, reduction="sum").item()
        correct += logits.argmax(1).eq(labels).sum().item()
    return loss / len(loader.dataset), 100.0 * correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description="SWA training")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--swa-start", type=int, default=3, help="the epoch from which weights are averaged")
    parser.add_argument("--lr-init", type=float, default=0.05)
    parser.add_argument("--swa-lr", type=float, default=0.03)
    parser.add_argument("--wd", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(1)
    device = torch.device("cuda")

    train_loader = DataLoader(glyphs(480, seed=1), batch_size=40, shuffle=True)
    test_loader = DataLoader(glyphs(240, seed=2), batch_size=80)
    model = Net().to(device)
    swa_model = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr_init, momentum=0.9, weight_decay=args.wd)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    swa_scheduler = SWALR(optimizer, swa_lr=args.swa_lr, anneal_epochs=2, anneal_strategy="linear")

    for epoch in range(args.epochs):
        model.train()
        running = 0.0
        for step, (images, labels) in enumerate(train_loader):
            images, labels = images.to(device), labels.to(device)
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
            if epoch >= args.swa_start and (step + 1) % 4 == 0:
                swa_model.update_parameters(model)
        if epoch >= args.swa_start:
            swa_scheduler.step()
        else:
            scheduler.step()
        _, accuracy = test(model, test_loader, device)
        lr = optimizer.param_groups[0]["lr"]
        print(f"ep {epoch} lr {lr:.5f} tr_loss {running / len(train_loader):.4f} te_acc {accuracy:.2f}")

    update_bn(train_loader, swa_model, device=device)
    loss, accuracy = test(swa_model, test_loader, device)
    print(f"swa of {swa_model.n_averaged.item()} models: te_loss {loss:.4f} te_acc {accuracy:.2f}")
    torch.save({"state_dict": swa_model.module.state_dict(), "n_averaged": swa_model.n_averaged.item()}, "swa.pt")


if __name__ == "__main__":
    main()
