"""CANN, driver and firmware, and whether they go together and with torch_npu (knowledge/cann.toml)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from torchport.doctor.check import Check, Machine
from torchport.errors import TorchportError
from torchport.vnpu import cann, wheels

DRIVER = "/usr/local/Ascend/driver/version.info"
FIRMWARE = "/usr/local/Ascend/firmware/version.info"
_FILES = ("version.cfg", "version.info", "compiler/version.info", "runtime/version.info")
_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})(?:\.(?:RC)?\d{1,4})*(?:\.\d{1,4})?", re.IGNORECASE)


def list_checks(machine: Machine) -> Iterator[Check]:
    """Nothing where there is neither CANN nor driver; the virtual NPU needs none."""
    home, driver, firmware = machine.cann, _read(machine, DRIVER), _read(machine, FIRMWARE)
    version = ""
    if home is not None:
        if not home.is_dir():
            fix = "source set_env.sh of the CANN that is installed, or unset ASCEND_HOME_PATH"
            yield Check("cann", False, f"ASCEND_HOME_PATH={home}, which is no folder", fix)
            return
        missing = [name for name in ("runtime", "compiler") if not (home / name).is_dir()]
        if missing:
            fix = "source set_env.sh of a complete toolkit, or install its missing package"
            yield Check("cann", False, f"{home} lacks {' and '.join(missing)}/: torch_npu refuses to start", fix)
            return
        version = read_cann_version(home)
        yield Check("cann", True, f"{version or 'of unknown version'} in {home}")
        yield from _with_torch_npu(version)
    if driver:
        yield from _driver(driver, firmware, version)


def read_cann_version(home: Path) -> str:
    """The version of the CANN in a folder; "" where none of its files says it."""
    for name in _FILES:
        try:
            text = (home / name).read_text("utf-8", "replace")
        except OSError:
            continue
        if match := _VERSION.search(text):
            return match.group()
    return ""


def _with_torch_npu(version: str) -> Iterator[Check]:
    try:
        wheel = wheels.find_wheel("torch_npu")
    except TorchportError:
        return  # said of the package
    if wheel is None or not version:
        return
    table: Mapping[str, str] = cann.load_cann_table()["torch_npu"]
    wanted = _row(table, _numbers(wheel.version))
    if wanted and _numbers(version)[:2] < _numbers(wanted)[:2]:
        fix = f"Install CANN {wanted}, or the torch_npu of CANN {version} (COMPATIBILITY.md of torch_npu)."
        yield Check(
            "compatibility", False, f"torch_npu {wheel.version} goes with CANN {wanted}, this is {version}", fix
        )
    else:
        yield Check("compatibility", True, f"torch_npu {wheel.version} with CANN {version}")


def _driver(driver: Mapping[str, str], firmware: Mapping[str, str], cann_version: str) -> Iterator[Check]:
    version = driver.get("Version") or driver.get("package_version", "unknown")
    table: Mapping[str, str] = cann.load_cann_table()["driver"]
    wanted = _row(table, _numbers(cann_version)) if cann_version else ""
    old = bool(wanted) and _numbers(version)[:2] < _numbers(wanted)[:2]
    detail = f"{version}, but CANN {cann_version} goes with {wanted} or later" if old else version
    yield Check(
        "driver", not old, detail, f"Install the driver {wanted}: ./Ascend-hdk-*-npu-driver_{wanted}_*.run --upgrade"
    )
    if not firmware:
        return
    has = firmware.get("Version", "unknown")
    bounds = re.findall(r"[\d.]+", driver.get("compatible_version_fw", ""))
    outside = len(bounds) == 2 and not _numbers(bounds[0]) <= _numbers(has) <= _numbers(bounds[1])
    detail = f"{has}, but this driver goes with {bounds[0]} to {bounds[1]}" if outside else has
    yield Check(
        "firmware",
        not outside,
        detail,
        "Install the firmware of this driver: ./Ascend-hdk-*-npu-firmware_*.run --upgrade",
    )


def _read(machine: Machine, name: str) -> dict[str, str]:
    lines = (line.partition("=") for line in machine.read_file_text(name).splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in lines}


def _row(table: Mapping[str, str], numbers: tuple[int, ...]) -> str:
    """The row of a version, or of the newest before it; "" where it is older than all."""
    before = [key for key in table if _numbers(key) <= numbers]
    return table[before[-1]] if before else ""


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, to compare; a release candidate counts as its release."""
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:4])
