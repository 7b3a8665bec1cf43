"""Mixed precision with a loss scale that starts too high: the first steps overflow and are skipped."""

import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, inputs=3, width=24, classes=6):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(inputs, width, 5, padding=2),
            nn.GroupNorm(4, width),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(width, width, 5, padding=2),
            nn.GroupNorm(4, width),
            nn.ReLU(),
        )
        self.classifier = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, classes))

    def forward(self, x):
        x = self.features(x)
        return self.classifier(x.mean(dim=2))


def gestures(count, seed):
    """Three channels of a moving sensor; the class is the rhythm and the axis."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(6, (count,), generator=generator)
    time = torch.arange(32.0)
    phase = 6.28 * torch.rand(count, 1, generator=generator)
    wave = torch.sin((0.4 + 0.5 * (label // 3)).unsqueeze(1) * time + phase)
    x = 0.5 * torch.randn(count, 3, 32, generator=generator)
    x[torch.arange(count), label % 3] += wave
    return TensorDataset(x, label)


def evaluate(model, loader):
    model.eval()
    hits, count = 0, 0
    with torch.no_grad():
        for x, label in loader:
            with torch.cuda.amp.autocast():
                logits = model(x.cuda())
            hits += (logits.argmax(dim=1).cpu() == label).sum().item()
            count += len(label)
    return 100 * hits / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--init-scale", type=float, default=2.0**24)
    parser.add_argument("--growth-interval", type=int, default=24)
    args = parser.parse_args()
    torch.manual_seed(30)
    torch.cuda.manual_seed_all(30)

    loader = DataLoader(gestures(576, seed=1), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(gestures(192, seed=2), batch_size=96)
    model = Net().cuda()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, 1.0, total_iters=16)
    scaler = torch.cuda.amp.GradScaler(init_scale=args.init_scale, growth_interval=args.growth_interval)
    skipped = 0
    for epoch in range(args.epochs):
        model.train()
        for x, label in loader:
            optimizer.zero_grad()
            with torch.cuda.amp.autocast():
                logits = model(x.cuda())
                loss = criterion(logits, label.cuda())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scale = scaler.get_scale()
            scaler.update()
            if scaler.get_scale() < scale:
                skipped += 1
            else:
                scheduler.step()
        accuracy = evaluate(model, test_loader)
        print(f"epoch {epoch}: loss {loss.item():.4f}, acc {accuracy:.2f}, scale {scale:.0f}, skipped {skipped}")
    torch.save({"model": model.state_dict(), "scaler": scaler.state_dict(), "skipped": skipped}, "amp_last.pt")


if __name__ == "__main__":
    main()
