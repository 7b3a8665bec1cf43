"""How far predicted throughputs are off models that no constant was fitted to: python tests/prediction/evaluate.py

holdout.json has the held-out rows; nothing else reads it. Prints the error of devices.toml's constants on them, by
family, with Spearman's rank correlation, and the error over 20 splits by family of all rows, each fitted anew.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchport.predict import calibration
from torchport.predict.calibration import Row, compute_log_error, compute_median, to_relative_error
from torchport.predict.interval import MEASURED, compute_interval_factors
from torchport.vnpu import chips

HOLDOUT = Path(__file__).with_name("holdout.json")
SPLITS = 20


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Rank correlation; equal values share the mean of their ranks."""

    def ranks(values: Sequence[float]) -> list[float]:
        ordered = sorted(values)
        return [ordered.index(each) + (ordered.count(each) - 1) / 2 for each in values]

    a, b = ranks(first), ranks(second)
    middle = (len(a) - 1) / 2
    over = sum((x - middle) * (y - middle) for x, y in zip(a, b, strict=True))
    return over / (sum((x - middle) ** 2 for x in a) * sum((y - middle) ** 2 for y in b)) ** 0.5


def holdout() -> list[Row]:
    """The held-out rows."""
    return calibration.read_zoo_rows(HOLDOUT.read_text("utf-8"))


def over_splits(rows: Sequence[Row], seed: int = 0) -> list[float]:
    """The median error of each of 20 splits by family, on the rows that it was not fitted to."""
    chip = chips.load_chips()[MEASURED]
    fixed = {name: row["value"] for name, row in chip["time"].items()}
    found = []
    for families in calibration.draw_splits({row.family for row in rows}, SPLITS, seed=seed):
        inside = [row for row in rows if row.family in families]
        constants = {**fixed, **calibration.fit_constants(inside, fixed, chip)}
        found.append(
            compute_median(
                [
                    to_relative_error(compute_log_error(row, constants, chip))
                    for row in rows
                    if row.family not in families
                ]
            )
        )
    return found


def accuracy(rows: Sequence[Row], constants: Mapping[str, float]) -> str:
    """The median error and the rank correlation, in words."""
    chip = chips.load_chips()[MEASURED]
    off = compute_median([to_relative_error(compute_log_error(row, constants, chip)) for row in rows])
    predicted = [row.batch / calibration.predict_step_time(row, constants, chip) * 1e3 for row in rows]
    return f"median error {off:6.1%}, Spearman {spearman(predicted, [row.published for row in rows]):.3f}"


def main(names: Sequence[str]) -> int:
    """Print the tables; with `rows`, each row too."""
    chip = chips.load_chips()[MEASURED]
    constants = {name: row["value"] for name, row in chip["time"].items()}
    rows = holdout()
    errors = {row.name: compute_log_error(row, constants, chip) for row in rows}
    for family in sorted({row.family for row in rows}):
        each = [to_relative_error(errors[row.name]) for row in rows if row.family == family]
        print(f"{family:14s} {len(each):3d} held-out models, median error {compute_median(each):6.1%}")
    low, high = compute_interval_factors(MEASURED)
    inside = sum(low <= 2.718281828 ** errors[row.name] <= high for row in rows)
    print(f"{'all':14s} {len(rows):3d} held-out models, {accuracy(rows, constants)}")
    print(f"{inside} of {len(rows)} inside the interval {low:.2f} to {high:.2f}")
    # That term is the youngest: it was added when the errors of these rows had been seen.
    unloaded = [dataclasses.replace(row, workers=0) for row in rows]
    print(f"without their data loaders: {accuracy(unloaded, constants)}")
    for seed in range(3):
        found = over_splits([*calibration.read_zoo_rows(), *rows], seed)
        print(
            f"20 splits by family, seed {seed}: median of medians {compute_median(found):6.1%} ({min(found):.1%} to {max(found):.1%})"
        )
    if "rows" in names:
        for row in sorted(rows, key=lambda row: errors[row.name]):
            print(f"{row.name:40s} {row.family:14s} {errors[row.name]:+.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
