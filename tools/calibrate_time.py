"""Fit Ascend910A's time constants to published throughputs: calibrate_time.py [--check]

Reads src/torchport/knowledge/zoo.json and no other rows. Writes the constants of basis "fitted" into devices.toml and
the errors of models that were left out, family by family, into zoo_residuals.json; prints the error by family. With
--check nothing is written, and the exit code is 1 where what is there is not what the fit gives.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from torchport.predict import calibration
from torchport.predict.interval import MEASURED
from torchport.vnpu import chips

KNOWLEDGE = Path(__file__).parents[1] / "src/torchport/knowledge"
PROFILES, RESIDUALS = KNOWLEDGE / "devices.toml", KNOWLEDGE / "zoo_residuals.json"


def fitted() -> tuple[dict[str, float], list[float]]:
    """The constants, to four digits, and the errors of left-out models."""
    rows, chip = calibration.read_zoo_rows(), chips.load_chips()[MEASURED]
    fixed = {name: row["value"] for name, row in chip["time"].items()}
    constants = calibration.fit_constants(rows, fixed, chip)
    left_out = calibration.left_out(rows, fixed, chip)
    return {name: float(f"{value:.4g}") for name, value in constants.items()}, [round(each, 4) for each in left_out]


def differing(constants: dict[str, float], tolerance: float = 2e-3) -> list[str]:
    """Constants of devices.toml that are not what the fit gives."""
    there = chips.load_chips()[MEASURED]["time"]
    return [name for name, value in constants.items() if abs(there[name]["value"] / value - 1) > tolerance]


def write(constants: dict[str, float], left_out: list[float]) -> None:
    """Replace the values in devices.toml, and the residuals."""
    head, begin, rest = PROFILES.read_text("utf-8").partition(f"[{MEASURED}.time]\n")
    own, after, others = rest.partition("\n\n[")
    for name, value in constants.items():
        own, count = re.subn(rf"(?m)^({name} = \{{ value = )[\d.e-]+(, basis = \"fitted\")", rf"\g<1>{value}\g<2>", own)
        if count != 1:
            raise ValueError(f"devices.toml has no fitted {name} of {MEASURED}")
    PROFILES.write_text(head + begin + own + after + others, "utf-8")
    RESIDUALS.write_text(json.dumps({"left_out": sorted(left_out)}) + "\n", "utf-8")


def main() -> int:
    """See the module's docstring."""
    constants, left_out = fitted()
    rows, chip = calibration.read_zoo_rows(), chips.load_chips()[MEASURED]
    full = {name: row["value"] for name, row in chip["time"].items()} | constants
    for family in sorted({row.family for row in rows}):
        errors = [calibration.compute_log_error(row, full, chip) for row in rows if row.family == family]
        found = calibration.compute_median([calibration.to_relative_error(each) for each in errors])
        print(f"{family:14s} {len(errors):3d} models, median error {found:6.1%}")
    own = calibration.compute_median(
        [calibration.to_relative_error(calibration.compute_log_error(row, full, chip)) for row in rows]
    )
    out = calibration.compute_median([calibration.to_relative_error(each) for each in left_out])
    print(f"{'all':14s} {len(rows):3d} models, median error {own:6.1%}; left out by family {out:6.1%}")
    if "--check" not in sys.argv[1:]:
        write(constants, left_out)
        return 0
    wrong = differing(constants)
    for name in wrong:
        print(f"devices.toml: {name} is not what the fit gives, {constants[name]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
