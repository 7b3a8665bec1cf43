"""What a verdict and a comparison may cost, for recordings that do not fit in memory too: `make accuracy`."""

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
    """In seconds of processor: other work on this machine is no part of it."""
    found = bench.verdict(tmp_path / model, model)
    assert found["processor"] <= 10
    assert found["memory"] <= 2 * GIB
    assert found["said"].endswith("100.0% judged")


@pytest.mark.parametrize(("size", "seconds", "memory"), [(bench.MEGABYTES, 3, GIB), (bench.LARGE, 60, GIB)])
def test_metrics_of_two_recordings(tmp_path, size, seconds, memory):
    found = bench.metrics(tmp_path / "both", size)
    assert found["said"] == f"{size * 1_000_000 // bench.BLOCK} results"
    assert found["processor"] <= seconds
    assert found["memory"] <= memory
    stored = sum(path.stat().st_size for path in (tmp_path / "both").rglob("*.h5"))
    assert stored > 2 * size * 990_000
    for path in (tmp_path / "both").rglob("*.h5"):
        path.unlink()  # gigabytes
