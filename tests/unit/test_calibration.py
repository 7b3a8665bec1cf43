"""The time model's constants are what the published throughputs give, and nothing held out can reach them."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from torchport.predict import calibration, interval
from torchport.predict.interval import MEASURED, compute_interval_factors, describe_validation
from torchport.vnpu import chips

ROOT = Path(__file__).parents[2]
CHIP = chips.load_chips()[MEASURED]
CONSTANTS = {name: row["value"] for name, row in CHIP["time"].items()}
HOLDOUT = ROOT / "tests/prediction/holdout.json"


def test_constants_are_what_the_fit_gives() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import calibrate_time
    finally:
        sys.path.remove(str(ROOT / "tools"))
    constants, left_out = calibrate_time.fitted()
    assert calibrate_time.differing(constants) == []
    # The same check sees a constant that is off by 5 %.
    assert calibrate_time.differing(constants | {"stream": constants["stream"] * 1.05}) == ["stream"]
    stored = json.loads(calibrate_time.RESIDUALS.read_text())["left_out"]
    assert stored == pytest.approx(sorted(left_out), abs=2e-3)


def test_no_row_is_in_both_files_and_calibration_names_none_of_the_other() -> None:
    inside = {row.name for row in calibration.read_zoo_rows()}
    outside = {row.name for row in calibration.read_zoo_rows(HOLDOUT.read_text("utf-8"))}
    assert len(inside) == 14 and len(outside) == 34 and not inside & outside
    readers = [
        path
        for path in [*ROOT.glob("src/**/*.py"), *ROOT.glob("tools/*.py"), *ROOT.glob("tests/**/*.py")]
        if re.search(r"holdout\.json", path.read_text("utf-8"))
    ]
    # zoo_runs.py writes it, evaluate.py and this test read it.
    assert {path.name for path in readers} == {"zoo_runs.py", "evaluate.py", Path(__file__).name}
    assert not list(ROOT.glob("src/**/holdout*"))


@pytest.mark.parametrize(
    ("program", "opened"),
    [
        (
            "sys.path.insert(0, 'tools'); import calibrate_time; assert calibrate_time.differing(calibrate_time.fitted()[0]) == []",
            0,
        ),
        # The control: what reads them is seen to.
        ("sys.path.insert(0, 'tests/prediction'); import evaluate; evaluate.holdout()", 1),
    ],
)
def test_the_fit_opens_no_held_out_row(program: str, opened: int) -> None:
    hook = (
        "import sys; seen = []\n"
        "sys.addaudithook(lambda what, args: what == 'open' and 'holdout' in str(args[0]) and seen.append(args[0]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{hook}{program}; print(len(seen))"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert done.stdout == f"{opened}\n"


def test_a_wrong_constant_is_noticed_in_the_errors() -> None:
    rows = calibration.read_zoo_rows()

    def off(constants: dict[str, float]) -> float:
        return calibration.compute_median(
            [calibration.to_relative_error(calibration.compute_log_error(row, constants, CHIP)) for row in rows]
        )

    right = off(CONSTANTS)
    assert right < 0.2
    assert off(CONSTANTS | {"stream": CONSTANTS["stream"] / 2}) > 1.5 * right
    assert off(CONSTANTS | {"cube": CONSTANTS["cube"] / 3}) > 1.5 * right


def test_the_formula_has_each_term() -> None:
    memory, matrix = CHIP["bandwidth_gbs"] * 1e9, CHIP["cube_cores"] * 8192 * CHIP["clock_ghz"] * 1e9
    constants = CONSTANTS | {"host_us": 0.0, "floor_us": 10.0}

    def time(*kernels: tuple[str, float, float, float, int]) -> float:
        return calibration.predict_step_time(calibration.Row("", "", 1, 1.0, kernels), constants, CHIP)

    assert time(("cube", matrix, 0, 0, 1)) == pytest.approx(1e3 / constants["cube"] + 0.01)
    assert time(("stream", 0, memory, 0, 2)) == pytest.approx(2e3 / constants["stream"] + 0.02)
    assert time(("norm", 0, 0, memory, 1)) == pytest.approx(1e3 / constants["move"] + 0.01)
    assert time(("host_copy", 0, memory, 0, 1)) == 0
    launches = calibration.Row("", "", 1, 1.0, (("stream", 0.0, 0.0, 0.0, 1000),))
    assert calibration.predict_step_time(launches, constants | {"host_us": 50.0}, CHIP) == pytest.approx(50)


def test_a_data_loader_of_few_workers_bounds_the_step() -> None:
    kernels = (("stream", 0.0, CHIP["bandwidth_gbs"] * 1e9 * CONSTANTS["stream"], 0.0, 1),)  # a second

    def time(workers: int) -> float:
        return calibration.predict_step_time(calibration.Row("", "", 260, 1.0, kernels, workers), CONSTANTS, CHIP)

    assert time(0) == time(4) == pytest.approx(1000, rel=1e-4)
    assert time(1) == pytest.approx(260 / calibration.LOADER * 1e3)
    # No calibrated row is one: the constants are those of the chip.
    assert all(
        calibration.predict_step_time(row, CONSTANTS, CHIP)
        == calibration.predict_step_time(dataclasses.replace(row, workers=0), CONSTANTS, CHIP)
        for row in calibration.read_zoo_rows()
    )


def test_splits_are_of_whole_families_and_repeatable() -> None:
    families = [f"family {i}" for i in range(10)]
    made = calibration.draw_splits(families, 20)
    assert made == calibration.draw_splits(families, 20) != calibration.draw_splits(families, 20, seed=1)
    assert all(len(each) == 3 for each in made)


@pytest.mark.parametrize("soc", chips.load_chips())
def test_interval_holds_the_prediction_and_says_what_validates_it(soc: str) -> None:
    low, high = compute_interval_factors(soc)
    unmeasured = chips.load_chips()[soc]["operators"] == "910B"  # the zoo's rows are of the others
    assert 0.2 < low <= 1 <= high < 5
    assert (high / low > compute_interval_factors(MEASURED)[1] / compute_interval_factors(MEASURED)[0]) == unmeasured
    assert ("Nothing validates" in describe_validation(soc)) == (CHIP["time"].keys() == {} or unmeasured)


def test_interval_holds_four_of_five_of_what_comes_next() -> None:
    """Of 15 values of one kind the interval of 14 is asked whether it holds the other, many times."""
    draw = random.Random(0)

    def held(between: Callable[[list[float], float], float]) -> float:
        found = []
        for _ in range(300):
            values = [draw.gauss(0, 1) for _ in range(15)]
            last, rest = values[0], sorted(values[1:])
            found.append(between(rest, 0.1) <= last <= between(rest, 0.9))
        return sum(found) / len(found)

    assert held(interval._between) == pytest.approx(0.8, abs=0.04)
    # What lies between the values' own shares holds fewer.
    assert held(lambda rest, share: rest[int(share * len(rest))]) < 0.76


@pytest.mark.parametrize("soc", chips.load_chips())
def test_each_constant_says_what_it_rests_on(soc: str) -> None:
    for name, row in chips.load_chips()[soc]["time"].items():
        if name == "like":
            assert row in chips.load_chips()
            continue
        assert row["basis"] in ("measured", "fitted", "stated", "guess") and len(row["source"]) > 7
        assert math.isfinite(row["value"]) and row["value"] >= 0


def test_the_tool_needs_no_torch() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'tools')!r}); import calibrate_time; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
