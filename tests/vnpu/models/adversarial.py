"""DCGAN (Radford et al. 2016) for 32x32 images: a generator and a discriminator with a loss each."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.family import Batch, Family, at_least_float32

NOISE, WIDTH = 16, 16


class DCGAN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(NOISE, 4 * WIDTH, 4, bias=False),
            nn.BatchNorm2d(4 * WIDTH),
            nn.ReLU(True),
            nn.ConvTranspose2d(4 * WIDTH, 2 * WIDTH, 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(2 * WIDTH),
            nn.ReLU(True),
            nn.ConvTranspose2d(2 * WIDTH, WIDTH, 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(WIDTH),
            nn.ReLU(True),
            nn.ConvTranspose2d(WIDTH, 1, 4, stride=2, padding=1, bias=False),
            nn.Tanh(),
        )
        self.discriminator = nn.Sequential(
            nn.Conv2d(1, WIDTH, 4, stride=2, padding=1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(WIDTH, 2 * WIDTH, 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(2 * WIDTH),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(2 * WIDTH, 4 * WIDTH, 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(4 * WIDTH),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(4 * WIDTH, 1, 4, bias=False),
            nn.Flatten(0),
        )
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0.0, 0.02)
            elif name.endswith("weight"):
                nn.init.normal_(parameter, 1.0, 0.02)

    def forward(self, noise: Tensor) -> Tensor:
        return self.generator(noise)


def noise_and_images(generator: torch.Generator) -> Batch:
    return torch.randn(8, NOISE, 1, 1, generator=generator), torch.rand(8, 1, 32, 32, generator=generator) * 2 - 1


def adversarial_loss(model: nn.Module, batch: Batch) -> Tensor:
    """The sum of both losses; each reaches only the gradients of its own half."""
    noise, real = batch
    generator, discriminator = model.generator, model.discriminator

    def judge(images: Tensor, real: float) -> Tensor:
        logits = at_least_float32(discriminator(images))
        return functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, real))

    fake = generator(noise)
    loss = judge(real, 1.0) + judge(fake.detach(), 0.0)
    discriminator.requires_grad_(False)  # the generator's loss runs through it and leaves it alone
    deceived = judge(fake, 1.0)
    discriminator.requires_grad_(True)
    return loss + deceived


FAMILIES = (Family("dcgan", DCGAN, noise_and_images, adversarial_loss),)
