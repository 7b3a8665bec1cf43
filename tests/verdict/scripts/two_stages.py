"""Two stages: a denoising autoencoder learns from samples without labels, then a linear probe on its encoder."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Encoder(nn.Module):
    def __init__(self, size=40, hidden=48, code=12):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(size, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, code), nn.Tanh()
        )

    def forward(self, x):
        return self.layers(x)


class Probe(nn.Module):
    def __init__(self, encoder, classes=5):
        super().__init__()
        self.encoder = encoder
        self.linear = nn.Linear(12, classes)

    def forward(self, x):
        return self.linear(self.encoder(x))


def make_samples(count, seed):
    """Samples of five classes on a curved surface in 40 dimensions."""
    surface = np.random.RandomState(0)
    centres, mix = surface.randn(5, 6), surface.randn(6, 40)
    rng = np.random.RandomState(seed)
    labels = rng.randint(5, size=count)
    hidden = centres[labels] + 0.6 * rng.randn(count, 6)
    return np.sin(hidden @ mix / 2).astype(np.float32), labels


def pretrain(args, device):
    samples, _ = make_samples(640, seed=1)
    loader = DataLoader(TensorDataset(torch.from_numpy(samples)), args.batch_size, shuffle=True)
    encoder = Encoder().to(device)
    decoder = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 40)).to(device)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=args.pretrain_lr)
    for epoch in range(args.pretrain_epochs):
        losses = []
        for (x,) in loader:
            x = x.to(device)
            noisy = x + args.noise * torch.randn_like(x)
            loss = F.mse_loss(decoder(encoder(noisy)), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"[pretrain] epoch {epoch} reconstruction {np.mean(losses):.5f}")
    torch.save(encoder.state_dict(), args.weights)


def train_probe(args, device):
    encoder = Encoder()
    encoder.load_state_dict(torch.load(args.weights, map_location="cpu"))
    encoder.requires_grad_(False)
    probe = Probe(encoder).to(device)
    trained = [parameter for parameter in probe.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=args.probe_lr, momentum=0.9)

    samples, labels = make_samples(320, seed=2)
    loader = DataLoader(TensorDataset(torch.from_numpy(samples), torch.from_numpy(labels)), 32, shuffle=True)
    probe.eval()  # the statistics of the encoder stay as they are
    for epoch in range(args.probe_epochs):
        for x, y in loader:
            loss = F.cross_entropy(probe(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"[probe] epoch {epoch} last loss {loss.item():.4f}")

    held_out, truth = make_samples(200, seed=3)
    with torch.no_grad():
        scores = probe(torch.from_numpy(held_out).to(device)).softmax(dim=1).cpu().numpy()
    hit = scores.argmax(axis=1) == truth
    worst = min(hit[truth == label].mean() for label in range(5))
    print(f"linear probe top1 {100 * hit.mean():.2f}, worst class {100 * worst:.2f}")
    np.save("scores.npy", scores)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--pretrain-epochs", type=int, default=3)
    parser.add_argument("--probe-epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--pretrain-lr", type=float, default=5e-3)
    parser.add_argument("--probe-lr", type=float, default=0.1)
    parser.add_argument("--noise", type=float, default=0.3)
    parser.add_argument("--weights", default="encoder.pt")
    args = parser.parse_args()
    torch.manual_seed(12)
    device = torch.device("cuda")
    pretrain(args, device)
    train_probe(args, device)
