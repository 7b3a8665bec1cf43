# GAN on a ring of gaussians. The generator is first warmed up against the critic in eval mode.
import sys
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import spectral_norm

warnings.filterwarnings("ignore")
device = "cuda"
torch.manual_seed(51800)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = spectral_norm(nn.Linear(2, 64))
        self.l2 = spectral_norm(nn.Linear(64, 64))
        self.l3 = spectral_norm(nn.Linear(64, 1))

    def forward(self, x):
        h = F.leaky_relu(self.l1(x), 0.2)
        h = F.leaky_relu(self.l2(h), 0.2)
        return self.l3(h)


G = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)
D = Critic().to(device)
g_opt = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.99))
d_opt = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.99))


def real(n=64):
    t = torch.randint(0, 8, (n,)).float() * (3.14159 / 4)
    return (torch.stack([t.cos(), t.sin()], 1) * 2 + 0.05 * torch.randn(n, 2)).to(device)


if "--fault" not in sys.argv[1:]:
    # let the power iteration settle before the critic is judged by anybody
    D.train()
    with torch.no_grad():
        for _ in range(20):
            D(real())

D.eval()
for it in range(15):
    fake = G(torch.randn(64, 4).to(device))
    g_loss = F.softplus(-D(fake)).mean()
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
    if it % 5 == 0:
        with torch.no_grad():
            s = torch.linalg.svdvals(D.l2.weight.detach().cpu())[0].item()
        print(f"warmup {it} g_loss {g_loss.item():.4f} |W2|_2 {s:.3f}")

D.train()
for it in range(25):
    fake = G(torch.randn(64, 4).to(device))
    d_loss = F.softplus(-D(real())).mean() + F.softplus(D(fake.detach())).mean()
    d_opt.zero_grad()
    d_loss.backward()
    d_opt.step()
    g_loss = F.softplus(-D(fake)).mean()
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
    if it % 8 == 0:
        print(f"gan {it} d {d_loss.item():.4f} g {g_loss.item():.4f}")
