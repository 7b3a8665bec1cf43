"""WGAN with gradient penalty on small synthetic images."""

import torch
from torch import autograd, nn, optim

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
nz, n_critic, lambda_gp = 16, 2, 10.0


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, 32, 4, 1, 0, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(True),
            nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(True),
            nn.ConvTranspose2d(16, 1, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(16, 32, 4, 2, 1),
            nn.InstanceNorm2d(32, affine=True),
            nn.LeakyReLU(0.2),
            nn.Conv2d(32, 1, 4, 1, 0),
        )

    def forward(self, x):
        return self.main(x).flatten()


def gradient_penalty(critic, real, fake):
    alpha = torch.rand(real.size(0), 1, 1, 1, device=real.device)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    scores = critic(mixed)
    gradients = autograd.grad(scores, mixed, torch.ones_like(scores), create_graph=True, retain_graph=True)[0]
    return ((gradients.flatten(1).norm(2, dim=1) - 1) ** 2).mean()


netG, netD = Generator().to(device), Critic().to(device)
optG, optD = (optim.Adam(net.parameters(), lr=1e-4, betas=(0.0, 0.9)) for net in (netG, netD))
data = torch.sin(torch.linspace(0, 6, 256).view(1, 1, 16, 16) + 6 * torch.rand(96, 1, 1, 1))

for it, real in enumerate(data.split(16)):
    real = real.to(device)
    with torch.no_grad():
        fake = netG(torch.randn(real.size(0), nz, 1, 1, device=device))
    d_loss = netD(fake).mean() - netD(real).mean() + lambda_gp * gradient_penalty(netD, real, fake)
    optD.zero_grad()
    d_loss.backward()
    optD.step()
    print(f"iter {it} critic loss {d_loss.item():.6f}")
    if (it + 1) % n_critic == 0:
        g_loss = -netD(netG(torch.randn(16, nz, 1, 1, device=device))).mean()
        optG.zero_grad()
        g_loss.backward()
        optG.step()
        print(f"iter {it} generator loss {g_loss.item():.6f}")
