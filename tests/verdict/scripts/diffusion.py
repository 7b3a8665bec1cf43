"""A denoising diffusion model (DDPM) of points on two moons; the samples of the averaged network are saved."""

import argparse
import math
from copy import deepcopy

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Denoiser(nn.Module):
    """Predicts the noise in a point from the point and the time."""

    def __init__(self, hidden=64):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.input = nn.Linear(2, hidden)
        self.layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(2))
        self.output = nn.Linear(hidden, 2)

    def forward(self, x, t):
        frequency = torch.exp(-math.log(1000) * torch.arange(8, device=x.device) / 8)
        angle = t[:, None].float() * frequency
        embedding = self.time(torch.cat([angle.sin(), angle.cos()], dim=1))
        h = self.input(x)
        for layer in self.layers:
            h = h + layer(F.silu(h + embedding))
        return self.output(F.silu(h))


class Diffusion:
    def __init__(self, steps, device):
        self.steps, self.device = steps, device
        self.beta = torch.linspace(1e-4, 0.12, steps, device=device)
        self.alpha = 1 - self.beta
        self.alpha_bar = self.alpha.cumprod(dim=0)

    def loss(self, model, x):
        t = torch.randint(self.steps, (len(x),), device=self.device)
        noise = torch.randn_like(x)
        alpha_bar = self.alpha_bar[t].unsqueeze(1)
        noisy = alpha_bar.sqrt() * x + (1 - alpha_bar).sqrt() * noise
        return F.mse_loss(model(noisy, t), noise)

    @torch.no_grad()
    def sample(self, model, count):
        x = torch.randn(count, 2, device=self.device)
        for step in reversed(range(self.steps)):
            t = torch.full((count,), step, device=self.device)
            predicted = model(x, t)
            mean = (x - self.beta[step] / (1 - self.alpha_bar[step]).sqrt() * predicted) / self.alpha[step].sqrt()
            before = self.alpha_bar[step - 1] if step else torch.ones((), device=self.device)
            variance = self.beta[step] * (1 - before) / (1 - self.alpha_bar[step])
            x = mean + variance.sqrt() * torch.randn_like(x)
        return x


def moons(count, rng):
    angle = np.pi * rng.random(count)
    upper = rng.random(count) < 0.5
    x = np.where(upper, np.cos(angle), 1 - np.cos(angle)) - 0.5
    y = np.where(upper, np.sin(angle), 0.5 - np.sin(angle)) - 0.25
    return (np.stack([x, y], axis=1) * 1.3 + 0.05 * rng.standard_normal((count, 2))).astype(np.float32)


def rate(step):
    """Linear warm-up, then constant, then a linear decay over the last 15 steps."""
    return min((step + 1) / 6, 1.0, (48 - step) / 15)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-steps", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--timesteps", type=int, default=40)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--ema-decay", type=float, default=0.92)
    args = parser.parse_args()
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    device = torch.device("cuda")

    model = Denoiser().to(device)
    average = deepcopy(model).eval()
    diffusion = Diffusion(args.timesteps, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    running = 0.0
    for step in range(1, args.train_steps + 1):
        loss = diffusion.loss(model, torch.from_numpy(moons(args.batch_size, rng)).to(device))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 1 - args.ema_decay)
        running += loss.item()
        if step % 12 == 0:
            print(f"step {step}: noise mse {running / 12:.4f}")
            running = 0.0

    samples = diffusion.sample(average, 256).cpu().numpy()
    nearest = np.linalg.norm(samples[:, None] - moons(400, rng)[None], axis=2).min(axis=1)
    print(f"samples: mean distance to the data {nearest.mean():.4f}, spread {samples.std():.4f}")
    np.save("samples.npy", samples)


if __name__ == "__main__":
    main()
