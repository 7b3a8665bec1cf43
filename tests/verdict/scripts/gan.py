"""A small GAN on points of a noisy ring: three losses, two optimizers."""

import argparse
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--nz", type=int, default=8, help="size of the latent vector")
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--beta1", type=float, default=0.5)
opt = parser.parse_args()

torch.manual_seed(11)
device = torch.device("cuda:0")


def ring(count):
    angle = torch.rand(count) * 2 * math.pi
    points = torch.stack([angle.cos(), angle.sin()], dim=1)
    return points + 0.05 * torch.randn(count, 2)


dataset = TensorDataset(ring(600))
dataloader = DataLoader(dataset, batch_size=opt.batch_size, shuffle=True, drop_last=True)

netG = nn.Sequential(nn.Linear(opt.nz, 48), nn.ReLU(True), nn.Linear(48, 48), nn.ReLU(True), nn.Linear(48, 2))
netD = nn.Sequential(
    nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1)
)
netG.to(device)
netD.to(device)

criterion = nn.BCEWithLogitsLoss()
fixed_noise = torch.randn(256, opt.nz, device=device)
optimizerD = torch.optim.Adam(netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))

for epoch in range(opt.epochs):
    for i, (real,) in enumerate(dataloader):
        # the discriminator: real and fake
        netD.zero_grad()
        real = real.to(device)
        ones = torch.ones(len(real), 1, device=device)
        zeros = torch.zeros(len(real), 1, device=device)
        errD_real = criterion(netD(real), ones)
        errD_real.backward()
        noise = torch.randn(len(real), opt.nz, device=device)
        fake = netG(noise)
        errD_fake = criterion(netD(fake.detach()), zeros)
        errD_fake.backward()
        optimizerD.step()

        # the generator: fake labels are real for its cost
        netG.zero_grad()
        errG = criterion(netD(fake), ones)
        errG.backward()
        optimizerG.step()
        if i % 4 == 0:
            print(f"[{epoch}][{i}] Loss_D: {(errD_real + errD_fake).item():.4f} Loss_G: {errG.item():.4f}")

with torch.no_grad():
    radius = netG(fixed_noise).norm(dim=1)
print(f"mean radius: {radius.mean().item():.4f}, spread: {radius.std().item():.4f}")
