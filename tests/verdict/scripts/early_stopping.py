"""Early stopping: the model with the best validation loss is kept in a file, and loaded again for the test."""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def make_split(count, seed):
    """Two noisy rings, one in the other, and 6 columns that say nothing; one label in ten is wrong."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(2, (count,), generator=generator)
    angle = 2 * math.pi * torch.rand(count, generator=generator)
    radius = 1.0 + label + 0.2 * torch.randn(count, generator=generator)
    useful = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    noise = torch.randn(count, 6, generator=generator)
    wrong = torch.rand(count, generator=generator) < 0.1
    return TensorDataset(torch.cat([useful, noise], dim=1), torch.where(wrong, 1 - label, label).float())


class EarlyStopping:
    """Stops the training when the validation loss has not improved for `patience` evaluations."""

    def __init__(self, patience, path):
        self.patience, self.path = patience, path
        self.best, self.counter = math.inf, 0

    def __call__(self, loss, model):
        if loss < self.best:
            self.best, self.counter = loss, 0
            torch.save(model.state_dict(), self.path)
        else:
            self.counter += 1
        return self.counter >= self.patience


def evaluate(model, loader, device):
    model.eval()
    loss, correct, count = 0.0, 0, 0
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            logit = model(x).squeeze(1)
            loss += F.binary_cross_entropy_with_logits(logit, y, reduction="sum").item()
            correct += ((logit > 0) == (y > 0.5)).sum().item()
            count += len(y)
    model.train()
    return loss / count, correct / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-epochs", type=int, default=10)
    parser.add_argument("--patience", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--weight-decay", type=float, default=0.02)
    args = parser.parse_args()
    torch.manual_seed(5)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    train_loader = DataLoader(make_split(240, seed=1), batch_size=40, shuffle=True)
    val_loader = DataLoader(make_split(200, seed=2), batch_size=100)
    test_loader = DataLoader(make_split(400, seed=3), batch_size=100)
    model = nn.Sequential(
        nn.Linear(8, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
    stopping = EarlyStopping(args.patience, "checkpoint.pt")

    for epoch in range(args.max_epochs):
        for x, y in train_loader:
            x, y = x.to(device), y.to(device)
            loss = F.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        val_loss, val_accuracy = evaluate(model, val_loader, device)
        print(f"epoch {epoch:2} | train {loss.item():.4f} | val {val_loss:.4f} | val acc {val_accuracy:.3f}")
        if stopping(val_loss, model):
            print(f"no improvement for {args.patience} evaluations, stopped after epoch {epoch}")
            break

    model.load_state_dict(torch.load("checkpoint.pt", map_location=device))
    test_loss, test_accuracy = evaluate(model, test_loader, device)
    print(f"best val {stopping.best:.4f} | test {test_loss:.4f} | test acc {test_accuracy:.3f}")


if __name__ == "__main__":
    main()
