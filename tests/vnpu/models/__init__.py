"""The model families that have to train on the NPU with the CPU's numbers.

Each is small enough that a training step takes well under a second on two CPU cores. Dropout is off in them: its
masks differ between devices by design, so `test_rng.py` judges it by its statistics and these by their gradients.
"""

from models import (
    adversarial,
    detector,
    diffusion,
    encoder_decoder,
    experts,
    language,
    recommendation,
    recurrent,
    unet,
    vision,
)

MODULES = (
    vision,
    detector,
    unet,
    adversarial,
    diffusion,
    language,
    encoder_decoder,
    experts,
    recurrent,
    recommendation,
)

FAMILIES = {family.name: family for module in MODULES for family in module.FAMILIES}
