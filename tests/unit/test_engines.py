"""engines.json: which unit of a 910B runs an operator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ACLNN = Path(__file__).parents[2] / "csrc/opapi/aclnn"
ENGINES = json.loads((ACLNN / "engines.json").read_text(encoding="utf-8"))
# Read by hand in the functions that add the kernels (ops-math, ops-nn: op_api/*.cpp; ops-transformer: op_kernel).
BY_HAND = {
    "aclnnMm": "cube",
    "aclnnMatmul": "cube",
    "aclnnBatchMatMul": "cube",
    "aclnnAddmm": "cube",
    "aclnnConvolution": "cube",
    "aclnnConvolutionBackward": "cube",
    "aclnnFlashAttentionScore": "cube",
    "aclnnAdd": "vector",
    "aclnnEmbedding": "vector",
    "aclnnIndexSelect": "vector",
    "aclnnSoftmax": "vector",
    "aclnnSort": "vector",
    "aclnnIm2col": "vector",
    "aclnnAddLayerNorm": "vector",
    "aclnnInverse": "device_cpu",
}
# The first tensor's dtypes for which every kernel is one of the device's CPU, and some for which none is.
ON_DEVICE_CPU = {
    "aclnnAbs": ({"i8", "i16", "f64"}, {"f16", "bf16", "f32", "i32", "i64"}),
    "aclnnSigmoid": ({"f64"}, {"f16", "bf16", "f32"}),
    "aclnnExp": ({"f64", "c64", "c128"}, {"f16", "bf16", "f32"}),
    "aclnnEmbedding": ({"f64"}, {"f16", "bf16", "f32", "i64"}),
    "aclnnAdd": ({"f64", "c128"}, {"f16", "bf16", "f32", "i32"}),
    "aclnnIm2col": (set(), {"f16", "f32"}),
}


def test_every_operator_has_a_row() -> None:
    assert set(ENGINES) == set(json.loads((ACLNN / "signatures.json").read_text(encoding="utf-8")))
    assert {row["engine"] for row in ENGINES.values()} == {"cube", "vector", "device_cpu", "unknown"}


def test_what_is_known_has_a_source() -> None:
    assert [name for name, row in ENGINES.items() if row["engine"] != "unknown" and not row["source"]] == []


@pytest.mark.parametrize("name", BY_HAND)
def test_units_read_by_hand(name: str) -> None:
    assert ENGINES[name]["engine"] == BY_HAND[name]


@pytest.mark.parametrize("name", ON_DEVICE_CPU)
def test_dtypes_read_by_hand(name: str) -> None:
    found = set(ENGINES[name].get("device_cpu", "").split())
    there, not_there = ON_DEVICE_CPU[name]
    assert there <= found and not not_there & found
