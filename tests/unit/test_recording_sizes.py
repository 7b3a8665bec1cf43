"""Memory of a verdict and of a comparison, for recordings that do not fit in it too: `make accuracy`.

The processor time is printed by benchmarks/compare_operators.py.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location(
    "compare_operators", Path(__file__).parents[2] / "benchmarks" / "compare_operators.py"
)
bench = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = bench
spec.loader.exec_module(bench)

GIB = 1 << 30
pytestmark = [pytest.mark.accuracy, pytest.mark.timeout(900)]


@pytest.mark.parametrize("model", bench.MODELS)
def test_a_verdict_of_one_step(tmp_path, model):
    found = bench.verdict(tmp_path / model, model)
    assert found["memory"] <= 2 * GIB
    assert found["said"].endswith("100.0% judged")


@pytest.mark.parametrize("size", [bench.MEGABYTES, bench.LARGE])
def test_metrics_of_two_recordings(tmp_path, size):
    found = bench.metrics(tmp_path / "both", size)
    assert found["said"] == f"{size * 1_000_000 // bench.BLOCK} results"
    assert found["memory"] <= GIB
    stored = sum(path.stat().st_size for path in (tmp_path / "both").rglob("*.h5"))
    assert stored > 2 * size * 990_000
    for path in (tmp_path / "both").rglob("*.h5"):
        path.unlink()  # gigabytes
