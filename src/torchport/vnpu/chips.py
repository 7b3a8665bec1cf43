"""The chip profiles of knowledge/devices.toml, which the virtual NPU has compiled in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from torchport.errors import TorchportError

DEFAULT = "Ascend910B1"


def _table() -> dict[str, dict[str, Any]]:
    import tomllib  # milliseconds that the user's process pays where it asks
    from importlib import resources

    return tomllib.loads(resources.files("torchport.knowledge").joinpath("devices.toml").read_text("utf-8"))


def load_chips() -> dict[str, dict[str, Any]]:
    """All profiles by soc name; the head of devices.toml documents the fields and their units."""
    return {name: chip for name, chip in _table().items() if "lacking" not in chip}


def load_lacking_chips() -> dict[str, str]:
    """Why chips whose names begin so have no profile."""
    return {name: chip["lacking"] for name, chip in _table().items() if "lacking" in chip}


def select_chip(environ: Mapping[str, str] | None = None) -> tuple[str, dict[str, Any]]:
    """Name and profile of the chip that VNPU_SOC selects. Raises `TorchportError` for a name without a profile."""
    environ = os.environ if environ is None else environ
    name, profiles = environ.get("VNPU_SOC") or DEFAULT, load_chips()
    if name not in profiles:
        why = next((f": {why}" for start, why in load_lacking_chips().items() if name.startswith(start)), "")
        raise TorchportError(
            f"VNPU_SOC={name} is not a chip profile of the virtual NPU{why}.", hint=f"Use one of {', '.join(profiles)}."
        )
    return name, profiles[name]
