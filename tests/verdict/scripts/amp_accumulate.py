"""Mixed precision in float16 with a GradScaler, gradients accumulated over four micro-batches."""

import argparse

import torch
import torch.nn as nn
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset


def make_data(count, seed):
    """Points around five centres in 20 dimensions."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(5, 20, generator=torch.Generator().manual_seed(99))
    labels = torch.randint(5, (count,), generator=generator)
    return TensorDataset(centres[labels] + 0.8 * torch.randn(count, 20, generator=generator), labels)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.dropout = nn.Dropout(0.15)
        self.classifier = nn.Linear(64, 5)

    def forward(self, x):
        return self.classifier(self.dropout(self.encoder(x)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--micro-batch", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--lr", type=float, default=4e-3)
    args = parser.parse_args()
    torch.manual_seed(21)

    train_loader = DataLoader(make_data(1024, 1), batch_size=args.micro_batch, shuffle=True)
    test_loader = DataLoader(make_data(256, 2), batch_size=128)
    model = Net().cuda()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.98), weight_decay=0.05)
    scaler = GradScaler(init_scale=2.0**12)

    for epoch in range(args.epochs):
        model.train()
        running = 0.0
        for step, (inputs, labels) in enumerate(train_loader):
            inputs, labels = inputs.cuda(), labels.cuda()
            with autocast():
                outputs = model(inputs)
                loss = criterion(outputs, labels) / args.accumulate
            scaler.scale(loss).backward()
            running += loss.item()
            if (step + 1) % args.accumulate == 0:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        print(f"epoch {epoch}: loss {running * args.accumulate / len(train_loader):.4f}")

    model.eval()
    correct = total = 0
    with torch.no_grad(), autocast():
        for inputs, labels in test_loader:
            predicted = model(inputs.cuda()).argmax(dim=1).cpu()
            correct += (predicted == labels).sum().item()
            total += len(labels)
    print(f"validation accuracy: {100.0 * correct / total:.2f}%")
