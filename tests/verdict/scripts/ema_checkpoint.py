"""Classify short signals with a 1-d convolutional network; its averaged weights are evaluated and saved."""

import argparse
from copy import deepcopy

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Signals(Dataset):
    """A pulse of one of four shapes somewhere in 48 noisy samples."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        time = np.linspace(-1, 1, 16)
        shapes = [np.exp(-8 * time**2), np.sign(time), np.sin(9 * time), 1 - np.abs(time)]
        self.labels = rng.integers(0, 4, count)
        self.signals = 0.45 * rng.standard_normal((count, 1, 48)).astype(np.float32)
        for signal, label, start in zip(self.signals, self.labels, rng.integers(0, 32, count), strict=True):
            signal[0, start : start + 16] += shapes[label]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.signals[index], self.labels[index]


def conv(inputs, outputs, stride):
    return nn.Sequential(
        nn.Conv1d(inputs, outputs, 5, stride, padding=2, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)
    )


class SignalNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(conv(1, 12, 1), conv(12, 16, 2), conv(16, 24, 2))
        self.pool = nn.AdaptiveMaxPool1d(1)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(24, 4)

    def forward(self, x):
        return self.head(self.drop(self.pool(self.features(x)).flatten(1)))


class ModelEma(nn.Module):
    """Keeps a moving average of everything in the model's state dict, on the device given or the model's own."""

    def __init__(self, model, decay=0.95, device=None):
        super().__init__()
        self.module = deepcopy(model).eval()
        self.decay, self.device, self.updates = decay, device, 0
        if device is not None:
            self.module.to(device=device)

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for average, value in zip(self.module.state_dict().values(), model.state_dict().values(), strict=True):
            value = value.detach().to(average.device)
            average.copy_(decay * average + (1 - decay) * value if average.is_floating_point() else value)


@torch.no_grad()
def validate(model, loader):
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    hits, confidence, count = 0, 0.0, 0
    for signal, label in loader:
        probability = model(signal.to(device)).softmax(dim=1).cpu()
        hits += (probability.argmax(dim=1) == label).sum().item()
        confidence += probability.gather(1, label[:, None]).sum().item()
        count += len(label)
    model.train(training)
    return 100 * hits / count, confidence / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=40)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--model-ema-decay", type=float, default=0.75)
    args = parser.parse_args()
    torch.manual_seed(8)

    train_loader = DataLoader(Signals(400, seed=1), args.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(Signals(160, seed=2), args.batch_size)
    model = SignalNet().cuda()
    ema = ModelEma(model, args.model_ema_decay)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.02)
    for epoch in range(args.epochs):
        model.train()
        for signal, label in train_loader:
            loss = criterion(model(signal.cuda()), label.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.update(model)
        top1, confidence = validate(ema.module, val_loader)
        print(f"Epoch {epoch}: loss {loss.item():.4f}, EMA Acc@1 {top1:.3f}, EMA confidence {confidence:.4f}")
        torch.save(
            {"epoch": epoch, "state_dict": model.state_dict(), "state_dict_ema": ema.module.state_dict()},
            f"checkpoint-{epoch}.pth.tar",
        )


if __name__ == "__main__":
    main()
