"""Classify noisy waves of different lengths with a two-layer LSTM."""

import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    """Sines of four frequencies, each padded with noise after its end."""

    def __init__(self, count, length=24, seed=0):
        generator = np.random.default_rng(seed)
        self.labels = generator.integers(0, 4, count)
        self.lengths = generator.integers(12, length + 1, count)
        time = np.arange(length)
        phase = generator.uniform(0, 2 * np.pi, (count, 1))
        clean = np.sin(time[None] * 0.25 * (self.labels[:, None] + 1) + phase)
        clean[time[None] >= self.lengths[:, None]] = 0.0
        self.waves = (clean + 0.1 * generator.standard_normal((count, length))).astype(np.float32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.waves[index][:, None], self.lengths[index], self.labels[index]


class Classifier(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, num_layers=2, batch_first=True, dropout=0.2)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(hidden, 4)

    def forward(self, x, lengths):
        out, _ = self.lstm(x)
        valid = torch.arange(x.size(1), device=x.device)[None] < lengths[:, None]
        out = out * valid.unsqueeze(2)
        pooled = out.sum(dim=1) / lengths.unsqueeze(1)
        return self.head(self.drop(pooled))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--clip", type=float, default=0.5)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.cuda.manual_seed_all(0)

    loader = DataLoader(Waves(512), batch_size=64, shuffle=True)
    model = Classifier().cuda()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05).cuda()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=args.lr, momentum=0.5, weight_decay=1e-4)
    for epoch in range(args.epochs):
        model.train()
        losses = []
        for wave, length, label in loader:
            logits = model(wave.cuda(), length.cuda())
            loss = criterion(logits, label.cuda())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {np.mean(losses):.4f}")

    model.eval()
    with torch.no_grad():
        test = Waves(200, seed=1)
        wave = torch.from_numpy(test.waves).unsqueeze(2).cuda()
        predicted = model(wave, torch.from_numpy(test.lengths).cuda()).argmax(1).cpu().numpy()
    print(f"accuracy {100 * np.mean(predicted == test.labels):.1f} %")


if __name__ == "__main__":
    main()
