"""The model families that have to train on the NPU with the CPU's numbers.

Each is small enough that a training step takes well under a second on two CPU cores. Dropout is off in them: its
masks differ between devices by design, so `test_rng.py` judges it by its statistics and these by their gradients.
"""

from models import adversarial, language, recurrent, unet, vision

FAMILIES = {
    family.name: family
    for module in (vision, unet, adversarial, language, recurrent)
    for family in module.FAMILIES
}
