"""Momentum contrast: the keys of past batches, from a slowly moving encoder, wait in a queue as negatives."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class TwoCrops(Dataset):
    """Two random windows of one long signal."""

    def __init__(self, count, seed=0):
        rng = np.random.RandomState(seed)
        time = np.arange(64)
        frequency, phase = rng.uniform(0.1, 1.2, (count, 2, 1)), rng.uniform(0, 6.28, (count, 2, 1))
        self.frequency = frequency[:, :, 0]
        self.signals = np.sin(frequency * time + phase).sum(axis=1).astype(np.float32)

    def __len__(self):
        return len(self.signals)

    def crop(self, index):
        start = torch.randint(33, ()).item()
        return torch.from_numpy(self.signals[index, start : start + 32]) + 0.1 * torch.randn(32)

    def __getitem__(self, index):
        return self.crop(index), self.crop(index)


class Encoder(nn.Sequential):
    def __init__(self, dim):
        super().__init__(
            nn.Linear(32, 96), nn.ReLU(inplace=True), nn.Linear(96, 64), nn.ReLU(inplace=True), nn.Linear(64, dim)
        )


class MoCo(nn.Module):
    def __init__(self, dim=24, size=864, momentum=0.95, temperature=0.15):
        super().__init__()
        self.size, self.m, self.temperature = size, momentum, temperature
        self.encoder_q, self.encoder_k = Encoder(dim), Encoder(dim)
        for param_q, param_k in zip(self.encoder_q.parameters(), self.encoder_k.parameters(), strict=True):
            param_k.data.copy_(param_q.data)
            param_k.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(dim, size), dim=0))
        self.ptr = 0

    @torch.no_grad()
    def update_key_encoder(self):
        for param_q, param_k in zip(self.encoder_q.parameters(), self.encoder_k.parameters(), strict=True):
            param_k.data = param_k.data * self.m + param_q.data * (1.0 - self.m)

    @torch.no_grad()
    def enqueue(self, keys):
        self.queue[:, self.ptr : self.ptr + len(keys)] = keys.T
        self.ptr = (self.ptr + len(keys)) % self.size

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            self.update_key_encoder()
            k = F.normalize(self.encoder_k(im_k), dim=1)
        positive = torch.einsum("nc,nc->n", q, k).unsqueeze(1)
        queue = self.queue.clone().detach().to(q.device)
        logits = torch.cat([positive, q @ queue], dim=1) / self.temperature
        labels = torch.zeros(len(q), dtype=torch.long, device=q.device)
        self.enqueue(k)
        return logits, labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.06)
    args = parser.parse_args()
    torch.manual_seed(10)

    data = TwoCrops(480)
    loader = DataLoader(data, args.batch_size, shuffle=True, drop_last=True)
    model = MoCo().cuda()
    criterion = nn.CrossEntropyLoss().cuda()
    optimizer = torch.optim.SGD(model.encoder_q.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    for epoch in range(args.epochs):
        total, top1 = 0.0, 0
        for im_q, im_k in loader:
            logits, labels = model(im_q.cuda(), im_k.cuda())
            loss = criterion(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            top1 += (logits.argmax(dim=1) == labels).sum().item()
        count = len(loader) * args.batch_size
        print(f"Epoch {epoch}: loss {total / len(loader):.4f}, pretext Acc@1 {100 * top1 / count:.2f}")

    # neighbours in the embedding should have similar frequencies
    model.eval()
    with torch.no_grad():
        signals = torch.from_numpy(data.signals[:, :32]).cuda()
        codes = F.normalize(model.encoder_k(signals), dim=1)
        similar = (codes @ codes.T).fill_diagonal_(-1.0).argmax(dim=1).cpu().numpy()
    gap = np.abs(np.sort(data.frequency) - np.sort(data.frequency[similar])).mean()
    print(f"frequency gap of the nearest neighbour {gap:.4f}")


if __name__ == "__main__":
    main()
