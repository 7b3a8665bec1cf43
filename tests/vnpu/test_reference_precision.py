"""Mixed precision of the reference against the NPU's: what is cast, what a GradScaler does, how near the losses are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from torchport.record import reference

SCRIPT = Path(__file__).with_name("data") / "half_precision.py"
DTYPES = ("float16", "bfloat16")
# Relative difference of losses and gradient norms: some roundings of the dtype.
NEAR = {"float16": 2e-3, "bfloat16": 1e-2}

# Operators that CUDA casts and torch_npu 2.13 does not: the reference's dtype and the port's. None is the region's.
CUDA_ONLY = {
    "lstm": (None, "torch.float32"),  # cuDNN runs the whole layer in half precision
    "gru": (None, "torch.float32"),
    "bilinear": ("torch.float32", None),
    "nearest": ("torch.float32", None),
    "rms_norm": ("torch.float32", None),
}

RUN_REFERENCE = """
import runpy, sys
from torchport.record import reference
reference.hide_npu()
import torch
reference.apply_reference_patches(torch{options})
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def results(*words: object, environment: Mapping[str, str]) -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", *map(str, words)],
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout[run.stdout.index("{") :])
    return found


def on_the_cpu(options: str = "") -> dict[str, Any]:
    code = RUN_REFERENCE.format(options=options)
    return results("-c", code, SCRIPT, "cuda", environment=reference.make_reference_environment(os.environ))


@pytest.fixture(scope="module")
def original() -> dict[str, Any]:
    return on_the_cpu()


@pytest.fixture(scope="module")
def port() -> dict[str, Any]:
    return results(SCRIPT, "npu", environment=os.environ)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_operators_are_cast(original: dict[str, Any], port: dict[str, Any], dtype: str) -> None:
    ours, theirs = original["operators"][dtype], port["operators"][dtype]
    assert len(ours) > 60
    assert "failed" not in ours.values()
    different = {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
    region = f"torch.{dtype}"
    assert different == {name: (a or region, b or region) for name, (a, b) in CUDA_ONLY.items()}


@pytest.mark.parametrize("dtype", DTYPES)
def test_training_follows(original: dict[str, Any], port: dict[str, Any], dtype: str) -> None:
    ours, theirs = original["training"][dtype], port["training"][dtype]
    for (loss, norm, scale), (other_loss, other_norm, other_scale) in zip(ours, theirs, strict=True):
        assert loss == pytest.approx(other_loss, rel=NEAR[dtype])
        assert norm == pytest.approx(other_norm, rel=NEAR[dtype])
        assert scale == other_scale
    assert ours[-1][2] > ours[0][2]  # it has grown


def test_overflows_are_skipped_alike(original: dict[str, Any], port: dict[str, Any]) -> None:
    ours, theirs = (one["training"]["float16 that overflows"] for one in (original, port))
    assert [row[2] for row in ours] == [row[2] for row in theirs]
    assert len({row[0] for row in ours}) == 1  # no step was made


def test_without_mixed_precision_they_differ(port: dict[str, Any]) -> None:
    plain = on_the_cpu(", mixed_precision=False")
    different = {
        name for name, dtype in plain["operators"]["float16"].items() if dtype != port["operators"]["float16"][name]
    }
    assert len(different) > 30
    scales = [[row[2] for row in one["training"]["float16 that overflows"]] for one in (plain, port)]
    assert scales[0] != scales[1]
