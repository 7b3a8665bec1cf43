"""The U-Net of a denoising diffusion model (Ho et al. 2020), one level deep."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.family import Batch, Family, at_least_float32

STEPS, WIDTH, GROUPS = 100, 16, 4


def sinusoids(step: Tensor, width: int) -> Tensor:
    """(N,) -> (N, width)"""
    frequencies = torch.exp(-math.log(10_000.0) * torch.arange(width // 2, device=step.device) / (width // 2))
    angles = step.unsqueeze(1).float() * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Residual(nn.Module):
    """Two convolutions; the embedding of the time step is added between them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(GROUPS, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1))
        self.time = nn.Linear(2 * WIDTH, outputs)
        self.second = nn.Sequential(nn.GroupNorm(GROUPS, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1))
        self.skip = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.first(x) + self.time(functional.silu(time))[:, :, None, None]
        return self.skip(x) + self.second(y)


class PixelAttention(nn.Module):
    """Self-attention of one head over all pixels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.query_key_value = nn.Conv2d(channels, 3 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.flatten(2).transpose(1, 2).unsqueeze(1) for part in self.query_key_value(self.norm(x)).chunk(3, dim=1)
        )
        y = functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.squeeze(1).transpose(1, 2).reshape(x.shape))


class DenoisingUNet(nn.Module):
    """(images (N, 3, H, W), steps (N,)) -> the noise in the images; H and W even."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.SiLU(), nn.Linear(2 * WIDTH, 2 * WIDTH))
        self.enter = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.above = Residual(WIDTH, WIDTH)
        self.down = nn.Conv2d(WIDTH, 2 * WIDTH, 3, stride=2, padding=1)
        self.below = Residual(2 * WIDTH, 2 * WIDTH)
        self.attention = PixelAttention(2 * WIDTH)
        self.up = nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(2 * WIDTH, WIDTH, 3, padding=1))
        self.merge = Residual(2 * WIDTH, WIDTH)
        self.leave = nn.Sequential(nn.GroupNorm(GROUPS, WIDTH), nn.SiLU(), nn.Conv2d(WIDTH, 3, 3, padding=1))

    def forward(self, images: Tensor, steps: Tensor) -> Tensor:
        time = self.time(sinusoids(steps, WIDTH).to(images.dtype))
        above = self.above(self.enter(images), time)
        below = self.attention(self.below(self.down(above), time))
        return self.leave(self.merge(torch.cat([above, self.up(below)], dim=1), time))


def noisy_images(generator: torch.Generator) -> Batch:
    """Images with noise by the paper's linear schedule, their time steps, and the noise."""
    images = torch.rand(4, 3, 16, 16, generator=generator) * 2 - 1
    noise = torch.randn(4, 3, 16, 16, generator=generator)
    steps = torch.randint(STEPS, (4,), generator=generator)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, STEPS), dim=0)[steps].view(-1, 1, 1, 1)
    return kept.sqrt() * images + (1 - kept).sqrt() * noise, steps, noise


def noise_error(model: nn.Module, batch: Batch) -> Tensor:
    images, steps, noise = batch
    return functional.mse_loss(at_least_float32(model(images, steps)), noise)


FAMILIES = (Family("diffusion", DenoisingUNet, noisy_images, noise_error),)
