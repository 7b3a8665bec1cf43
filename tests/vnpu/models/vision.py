"""Image classifiers, from torchvision: ResNet-18 and 50, ShuffleNetV2, MobileNetV3, DenseNet, EfficientNet, a vision
transformer, Swin."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from models.family import Batch, Family
from torchport import cuda_builds

cuda_builds.mend_when_imported()

from torchvision import models  # noqa: E402
from torchvision.models.efficientnet import MBConvConfig  # noqa: E402

CLASSES = 10


def images(count: int, side: int) -> Callable[[torch.Generator], Batch]:
    """Batches of `count` colour images with their classes."""

    def batch(generator: torch.Generator) -> Batch:
        pixels = torch.randn(count, 3, side, side, generator=generator)
        return pixels, torch.randint(CLASSES, (count,), generator=generator)

    return batch


def without_dropout(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def resnet50() -> nn.Module:
    """With branches that start at a fifth of the identity's weight. With torchvision's start, a ReLU that ties in
    rounding changes the gradients of 50 layers by 2 % in float32 and by more than 100 % in bfloat16, on any device;
    nothing could be told from those."""
    model = models.resnet50(num_classes=CLASSES)
    for module in model.modules():
        if isinstance(module, models.resnet.Bottleneck):
            nn.init.constant_(module.bn3.weight, 0.2)
    return model


def with_random_biases(model: nn.Module) -> nn.Module:
    """In the normalisations. At torchvision's zero, many of the scales only multiply what the next normalisation
    divides by again: their gradient is zero but for its epsilon."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.bias, std=0.2)
    return model


def shufflenet() -> nn.Module:
    return with_random_biases(models.shufflenet_v2_x0_5(num_classes=CLASSES))


def mobilenet() -> nn.Module:
    return without_dropout(models.mobilenet_v3_small(num_classes=CLASSES))


def vision_transformer() -> nn.Module:
    model = models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=3, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=CLASSES
    )
    # torchvision starts the classifier at zero, which keeps the first gradient of everything below at zero.
    nn.init.normal_(model.heads.head.weight, std=0.1)
    return model


def densenet() -> nn.Module:
    model = models.DenseNet(growth_rate=8, block_config=(2, 3, 2), num_init_features=16, bn_size=2, num_classes=CLASSES)
    return with_random_biases(model)


def efficientnet() -> nn.Module:
    # expansion, kernel, stride, channels in and out, blocks: one of each kind of the B0's seven stages
    stages = ((1, 3, 1, 16, 8, 1), (6, 3, 2, 8, 16, 2), (6, 5, 2, 16, 24, 2))
    return models.EfficientNet(
        [MBConvConfig(*stage) for stage in stages],
        dropout=0.0,
        stochastic_depth_prob=0.0,
        num_classes=CLASSES,
        last_channel=96,
    )


def swin() -> nn.Module:
    return models.SwinTransformer(
        patch_size=[2, 2],
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=[4, 4],
        stochastic_depth_prob=0.0,
        num_classes=CLASSES,
    )


FAMILIES = (
    Family("resnet18", lambda: models.resnet18(num_classes=CLASSES), images(8, 64), steps=20),
    Family("resnet50", resnet50, images(4, 64), steps=20),
    Family("shufflenet", shufflenet, images(8, 64)),
    Family("mobilenet", mobilenet, images(8, 64)),
    Family("densenet", densenet, images(8, 32)),
    Family("efficientnet", efficientnet, images(8, 32)),
    Family("vit", vision_transformer, images(8, 32)),
    Family("swin", swin, images(4, 32)),
)
