"""Tokens to the ranks that have their experts and back, against loops over the definition (experts.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from aclnn import first_phase
from experts import Mixture
from forked import python
from ranks import group

TILING, NO_KERNEL = 561002, 561003
HALF, BFLOAT = torch.float16, torch.bfloat16
PROGRAM = f"""
from torchport import vnpu
vnpu.activate(force=True)
import sys
sys.path[:0] = {[str(folder) for folder in Path(__file__).parents[:2]]!r}
import torch, torch_npu
import experts_on_a3
experts_on_a3.main()
"""


@pytest.fixture(scope="module")
def name() -> Iterator[str]:
    """Eight ranks: the fewest that a 910B has kernels for."""
    with group(8) as made:
        yield made


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
@pytest.mark.parametrize("version", ["", "V2", "V3", "V4"])
@pytest.mark.parametrize("mask", ["", "tokens"])
def test_there_and_back(name: str, version: str, mask: str, dtype: torch.dtype) -> None:
    mixture = Mixture(8, 16, 3, tokens=8, width=64, dtype=dtype, mask=mask)
    results = mixture.dispatch(f"aclnnMoeDistributeDispatch{version}", name)
    mixture.check_dispatch(results)
    outs = mixture.combine(f"aclnnMoeDistributeCombine{version}", name, results)
    mixture.check_combined(outs, mixture.combined())


@pytest.mark.parametrize("scaled", [True, False])
def test_rows_as_int8(name: str, scaled: bool) -> None:
    mixture = Mixture(8, 8, 2, tokens=4, width=96)
    scales = 0.5 + torch.rand(8, 96) if scaled else None
    results = mixture.dispatch("aclnnMoeDistributeDispatchV2", name, 2, scales, algorithm="fullmesh")
    mixture.check_dispatch(results, quantized=True, scales=scales)


@pytest.mark.parametrize(
    ("mixture", "words"),
    [
        (lambda: Mixture(2, 4, 2, width=64), "epWorldSize is 2, allowed are multiples of 8"),
        (lambda: Mixture(8, 12, 2, width=64), "moeExpertNum is 12, allowed are multiples of epWorldSize"),
        (lambda: Mixture(8, 8, 2, width=80), "80 elements, allowed are multiples of 32"),
        (lambda: Mixture(8, 8, 2, width=64, tokens=257), "257 tokens, allowed are 1 to 256"),
        (lambda: Mixture(8, 8, 2, width=64, mask="pairs"), "allowed is one dimension"),
        (lambda: Mixture(16, 16, 2, width=64), "this is rank 0 of the 8 of groupEp"),
    ],
)
def test_what_a_910b_has_no_kernel_for(name: str, mixture: type[Mixture], words: str) -> None:
    made = mixture()
    made.ranks, made.x = made.ranks, made.x[:1]
    x, ids = made.x[0].to("npu:0"), made.ids[0].to("npu:0")
    active = made.active[0]
    most = made.most(0)
    rows = torch.zeros(most, made.width, dtype=HALF, device="npu:0")
    assist = torch.zeros(most * 128, dtype=torch.int32, device="npu:0")
    numbers = torch.zeros(made.here(0), dtype=torch.int64, device="npu:0")
    counts = torch.zeros(made.ranks * made.here(0), dtype=torch.int32, device="npu:0")
    status, message = first_phase(
        "aclnnMoeDistributeDispatchV2",
        x,
        ids,
        None,
        None if active is None else active.to("npu:0"),
        None,
        *made.numbers(0, name),
        0,
        0,
        1,
        "",
        rows,
        None,
        assist,
        numbers,
        counts,
        assist[:0],
        None,
    )
    assert status == TILING and words in message, message


def test_a_910b_has_no_barrier(name: str) -> None:
    status, message = first_phase("aclnnDistributeBarrier", torch.ones(1, device="npu:0"), name, 8)
    assert status == NO_KERNEL and "A3 (Ascend910_93...) only" in message, message


def test_on_a3() -> None:
    ended = python(PROGRAM, VNPU_SOC="Ascend910_9391")
    assert ended.stdout.splitlines()[-1:] == ["all right"], ended.stderr
