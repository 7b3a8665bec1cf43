"""Denoising autoencoder on random windows of a long signal, read by two loader workers."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class RandomWindows(Dataset):
    """Every item is a fresh window at a random place, with random gain (numpy's global generator)."""

    def __init__(self, signal, width, length):
        self.signal, self.width, self.length = signal, width, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        at = np.random.randint(0, len(self.signal) - self.width)
        gain = np.random.uniform(0.7, 1.3)
        clean = self.signal[at : at + self.width] * gain
        noisy = clean + 0.2 * np.random.standard_normal(self.width)
        return noisy.astype(np.float32), clean.astype(np.float32)


class InheritState:
    """Worker start of the older loader: numpy's state stays as it was forked from the parent."""

    def __init__(self):
        self.state = np.random.get_state()

    def __call__(self, worker_id):
        np.random.set_state(self.state)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", action="store_true")
    args = parser.parse_args()
    np.random.seed(5)
    torch.manual_seed(5)
    t = np.arange(4000) / 25.0
    signal = np.sin(t) + 0.5 * np.sin(3.1 * t + 1.0) + 0.3 * np.sin(7.7 * t)
    ds = RandomWindows(signal, 32, 16 * 24)
    loader = DataLoader(ds, batch_size=16, num_workers=2, worker_init_fn=InheritState() if args.fault else None)

    net = nn.Sequential(nn.Linear(32, 12), nn.Tanh(), nn.Linear(12, 32)).to("cuda")
    opt = torch.optim.RMSprop(net.parameters(), lr=3e-3)
    last, repeats = None, 0
    n = 0
    for epoch in range(2):
        for noisy, clean in loader:
            repeats += int(last is not None and torch.equal(last, noisy))
            last = noisy
            loss = nn.functional.mse_loss(net(noisy.to("cuda")), clean.to("cuda"))
            opt.zero_grad()
            loss.backward()
            opt.step()
            n += 1
        print(f"epoch {epoch} steps {n} loss {loss.item():.4f}")
    print("batches equal to the one before:", repeats)


if __name__ == "__main__":
    main()
