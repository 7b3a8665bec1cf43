# ruff: noqa: N816 (names as such scripts have them)
"""Train a DCGAN on scikit-learn's handwritten digits, on one CUDA GPU."""

import argparse
import random

import torch
import torch.nn as nn
import torch.optim as optim
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64, help="input batch size")
parser.add_argument("--nz", type=int, default=32, help="size of the latent z vector")
parser.add_argument("--ngf", type=int, default=32, help="channels of the generator")
parser.add_argument("--ndf", type=int, default=32, help="channels of the discriminator")
parser.add_argument("--epochs", type=int, default=5, help="number of epochs to train for")
parser.add_argument("--lr", type=float, default=0.0002, help="learning rate")
parser.add_argument("--beta1", type=float, default=0.5, help="beta1 of Adam")
parser.add_argument("--no-cuda", action="store_true", help="train on the CPU")
parser.add_argument("--netG", default="", help="path to netG (to continue training)")
parser.add_argument("--outf", default="", help="folder for samples and checkpoints")
parser.add_argument("--manualSeed", type=int, default=1, help="manual seed")
opt = parser.parse_args()

random.seed(opt.manualSeed)
torch.manual_seed(opt.manualSeed)
use_cuda = not opt.no_cuda and torch.cuda.is_available()
if use_cuda:
    torch.cuda.manual_seed(opt.manualSeed)
device = torch.device("cuda:0" if use_cuda else "cpu")
FloatTensor = torch.cuda.FloatTensor if use_cuda else torch.FloatTensor

digits = torch.from_numpy(load_digits().images).float().div(8).sub(1).unsqueeze(1)
dataloader = DataLoader(TensorDataset(digits), batch_size=opt.batch_size, shuffle=True, drop_last=True)


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


class Generator(nn.Module):
    """Noise (N, nz, 1, 1) to images (N, 1, 8, 8) between -1 and 1."""

    def __init__(self, nz, ngf):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 2, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    """Images (N, 1, 8, 8) to the logit that each is real, (N,)."""

    def __init__(self, ndf):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 2, 1, 0, bias=False),
        )

    def forward(self, x):
        return self.main(x).view(-1)


netG = Generator(opt.nz, opt.ngf).to(device)
netG.apply(weights_init)
if opt.netG:
    netG.load_state_dict(torch.load(opt.netG, map_location=device))
netD = Discriminator(opt.ndf).to(device)
netD.apply(weights_init)

criterion = nn.BCEWithLogitsLoss()
fixed_noise = torch.randn(16, opt.nz, 1, 1).type(FloatTensor)
optimizerD = optim.Adam(netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))

for epoch in range(opt.epochs):
    for i, (images,) in enumerate(dataloader):
        # the discriminator: maximize log(D(x)) + log(1 - D(G(z)))
        netD.zero_grad()
        real = images.to(device)
        ones = torch.ones(real.size(0), device=real.device)
        errD_real = criterion(netD(real), ones)
        errD_real.backward()
        noise = torch.randn(real.size(0), opt.nz, 1, 1).to(device)
        fake = netG(noise)
        errD_fake = criterion(netD(fake.detach()), torch.zeros_like(ones))
        errD_fake.backward()
        optimizerD.step()

        # the generator: maximize log(D(G(z)))
        netG.zero_grad()
        errG = criterion(netD(fake), ones)
        errG.backward()
        optimizerG.step()

        if i % 10 == 0:
            errD = (errD_real + errD_fake).item()
            print(f"[{epoch}/{opt.epochs}][{i}/{len(dataloader)}] Loss_D: {errD:.4f} Loss_G: {errG.item():.4f}")

    if opt.outf:
        with torch.no_grad():
            torch.save(netG(fixed_noise).cpu(), f"{opt.outf}/samples_{epoch:03d}.pt")
        torch.save(netG.state_dict(), f"{opt.outf}/netG_{epoch:03d}.pth")
if use_cuda:
    torch.cuda.synchronize()
    print(f"on {torch.cuda.get_device_name(0)}")
