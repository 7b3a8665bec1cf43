"""U-Net for segmentation (Ronneberger et al. 2015), two levels deep, upsampling in two ways."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.family import Batch, Family, at_least_float32


def double_convolution(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """(N, 1, H, W) -> (N, 1, H, W); H and W divisible by 4. `upsample` makes the layer that doubles both."""

    def __init__(self, transposed: bool, width: int = 8) -> None:
        super().__init__()

        def upsample(channels: int) -> nn.Module:
            if transposed:
                return nn.ConvTranspose2d(channels, channels // 2, 2, stride=2)
            up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            return nn.Sequential(up, nn.Conv2d(channels, channels // 2, 1))

        self.down = nn.ModuleList(
            [
                double_convolution(1, width),
                double_convolution(width, 2 * width),
                double_convolution(2 * width, 4 * width),
            ]
        )
        self.up = nn.ModuleList([upsample(4 * width), upsample(2 * width)])
        self.merge = nn.ModuleList([double_convolution(4 * width, 2 * width), double_convolution(2 * width, width)])
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        skipped = []
        for down in self.down:
            x = down(x if not skipped else functional.max_pool2d(skipped[-1], 2))
            skipped.append(x)
        skipped.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skipped.pop(), up(x)], dim=1))
        return self.head(x)


def masks(generator: torch.Generator) -> Batch:
    image = torch.randn(4, 1, 32, 32, generator=generator)
    blurred = functional.avg_pool2d(image, 5, stride=1, padding=2)
    return image, (blurred > 0).float()


def segmentation_loss(model: nn.Module, batch: Batch) -> Tensor:
    image, mask = batch
    return functional.binary_cross_entropy_with_logits(at_least_float32(model(image)), mask)


FAMILIES = (
    Family("unet.transposed", lambda: UNet(transposed=True), masks, segmentation_loss),
    Family("unet.bilinear", lambda: UNet(transposed=False), masks, segmentation_loss),
)
