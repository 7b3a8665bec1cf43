"""The chip profiles of knowledge/devices.toml, which the virtual NPU has compiled in."""

from __future__ import annotations

import os
import tomllib
from importlib import resources
from typing import Any

from torchport.errors import TorchportError

DEFAULT = "Ascend910B1"


def chips() -> dict[str, dict[str, Any]]:
    """All profiles by soc name; the head of devices.toml documents the fields and their units."""
    return tomllib.loads(resources.files("torchport.knowledge").joinpath("devices.toml").read_text("utf-8"))


def selected() -> tuple[str, dict[str, Any]]:
    """Name and profile of the chip that VNPU_SOC selects. Raises `TorchportError` for an unknown name."""
    name, profiles = os.environ.get("VNPU_SOC") or DEFAULT, chips()
    if name not in profiles:
        raise TorchportError(
            f"VNPU_SOC={name} is not a chip profile of the virtual NPU.",
            hint=f"Use one of {', '.join(profiles)}.",
        )
    return name, profiles[name]
