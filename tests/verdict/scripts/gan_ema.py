"""A GAN on a spiral with a gradient penalty on real points and an average of the generator, which draws the samples."""

import argparse
import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import MultiStepLR

parser = argparse.ArgumentParser()
parser.add_argument("--iterations", type=int, default=34)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--latent", type=int, default=6)
parser.add_argument("--lr", type=float, default=5e-3)
parser.add_argument("--r1", type=float, default=0.5, help="weight of the gradient penalty")
parser.add_argument("--ema-beta", type=float, default=0.9)
args = parser.parse_args()
torch.manual_seed(19)
device = "cuda"


def sample_data(count):
    t = torch.rand(count).sqrt()
    angle = 7 * t
    return torch.stack([t * angle.cos(), t * angle.sin()], dim=1) * 1.5 + 0.04 * torch.randn(count, 2)


class Generator(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(args.latent, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden), nn.LeakyReLU(0.2)
        )
        self.out = nn.Linear(hidden, 2)

    def forward(self, z):
        return self.out(self.main(z))


class Discriminator(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(2, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden), nn.LeakyReLU(0.2))
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.out(self.main(x)).squeeze(1)


@torch.no_grad()
def accumulate(average, model, beta):
    for name, value in model.named_parameters():
        average.get_parameter(name).mul_(beta).add_(value, alpha=1 - beta)


generator, discriminator = Generator().to(device), Discriminator().to(device)
g_ema = copy.deepcopy(generator).eval().requires_grad_(False)
g_optim = torch.optim.Adam(generator.parameters(), lr=args.lr, betas=(0.0, 0.99))
d_optim = torch.optim.Adam(discriminator.parameters(), lr=args.lr, betas=(0.0, 0.99))
d_schedule = MultiStepLR(d_optim, milestones=[26], gamma=0.5)

for i in range(args.iterations):
    real = sample_data(args.batch).to(device).requires_grad_()
    fake = generator(torch.randn(args.batch, args.latent, device=device))
    real_score = discriminator(real)
    d_loss = F.softplus(-real_score).mean() + F.softplus(discriminator(fake.detach())).mean()
    (slope,) = torch.autograd.grad(real_score.sum(), real, create_graph=True)
    penalty = slope.square().sum(dim=1).mean()
    d_optim.zero_grad()
    (d_loss + 0.5 * args.r1 * penalty).backward()
    d_optim.step()
    d_schedule.step()

    fake = generator(torch.randn(args.batch, args.latent, device=device))
    g_loss = F.softplus(-discriminator(fake)).mean()
    g_optim.zero_grad()
    g_loss.backward()
    g_optim.step()
    accumulate(g_ema, generator, args.ema_beta)
    if (i + 1) % 8 == 0:
        print(f"it {i + 1}: d {d_loss.item():.4f} g {g_loss.item():.4f} r1 {penalty.item():.5f}")

with torch.no_grad():
    noise = torch.randn(500, args.latent, device=device)
    samples = g_ema(noise).cpu()
distance = torch.cdist(sample_data(500), samples).min(dim=1).values
print(f"coverage {100 * (distance < 0.2).float().mean().item():.1f} %, distance {distance.mean().item():.4f}")
np.save("samples.npy", samples.numpy())
