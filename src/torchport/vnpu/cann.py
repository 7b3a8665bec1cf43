"""The version of CANN that the virtual NPU stands for: knowledge/cann.toml, which the libraries have compiled in."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from typing import Any

from torchport.errors import TorchportError

# What csrc/ascendcl/version.cpp takes, which is what torch_npu can compare.
VERSION = re.compile(r"(?P<major>\d{1,3})[.-](?P<minor>\d{1,3})[.-](RC)?\d{1,3}([.-](alpha|beta|rc)([.-]?\d{1,3})?)?")


@functools.cache
def load_cann_table() -> dict[str, Any]:
    """The table; cann.toml explains it."""
    import tomllib  # milliseconds that the user's process pays where it asks
    from importlib import resources

    return tomllib.loads(resources.files("torchport.knowledge").joinpath("cann.toml").read_text("utf-8"))


def read_default_version() -> str:
    """The version that belongs to the torch_npu that is supported."""
    version: str = load_cann_table()["default"]
    return version


def select_version(environ: Mapping[str, str] | None = None) -> str:
    """The version that VNPU_CANN selects. Raises `TorchportError` for what is no version, or too old a one."""
    environ = os.environ if environ is None else environ
    name = environ.get("VNPU_CANN") or read_default_version()
    parsed = VERSION.fullmatch(name)
    if parsed is None:
        raise TorchportError(
            f"VNPU_CANN={name} is not a version of CANN.",
            hint=f"Write for example {read_default_version()} or 8.3.RC1, or unset it.",
        )
    oldest = next(iter(load_cann_table()["driver"]))
    if (int(parsed["major"]), int(parsed["minor"])) < tuple(map(int, oldest.split("."))):
        raise TorchportError(
            f"VNPU_CANN={name} is too old.", hint=f"The virtual NPU stands for CANN {oldest} and later."
        )
    return name
