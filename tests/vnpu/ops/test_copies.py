"""Copies that operators make of strided operands, and what they allocate, are on record in the trace."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from workspace import measured

COPY = re.compile(r" call contiguous\((aclnn\w+), tensors=(\d+)\) -> ok$")


def traced(call: Callable[[], object]) -> list[str]:
    """The lines that `call` adds to the trace."""
    trace = Path(os.environ["VNPU_TRACE"])
    torch.npu.synchronize()
    torch.ones(1, device="npu").item()  # a task retires after it is done: the next one proves it has
    before = trace.stat().st_size
    call()
    torch.npu.synchronize()
    torch.ones(1, device="npu").item()
    with trace.open("rb") as file:
        file.seek(before)
        return file.read().decode().splitlines()


def copied(call: Callable[[], object]) -> list[tuple[str, int]]:
    """(operator, tensors) of what `call` makes operators copy."""
    return [(match[1], int(match[2])) for line in traced(call) if (match := COPY.search(line))]


def matrix(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, device="npu")


def test_a_kernel_that_wants_its_elements_in_order_copies() -> None:
    """Batch normalisation, of its input."""
    strided = matrix(2, 4, 3).transpose(1, 2)
    assert copied(lambda: torch.nn.functional.batch_norm(strided, None, None, training=True)) == [("aclnnBatchNorm", 1)]


@pytest.mark.parametrize(
    "call",
    [
        lambda: matrix(3, 4).t() + matrix(4, 3),
        lambda: matrix(6, 4)[::2].sum(),
        lambda: matrix(3, 4) @ matrix(5, 4).t(),
        lambda: torch.bmm(matrix(2, 3, 4), matrix(2, 5, 4).transpose(1, 2)),
        lambda: torch.softmax(matrix(2, 3), 1),
        lambda: torch.cat([matrix(2, 3).t(), matrix(3, 2)]),
        lambda: matrix(2, 3).t().clone(),
    ],
)
def test_kernels_that_follow_strides_do_not(call: Callable[[], object]) -> None:
    assert copied(call) == []


def test_what_a_kernel_allocates() -> None:
    x = matrix(64, 64)
    assert measured(traced(lambda: x.roll(1, 0))) == {"aclnnRoll": {"in": ["roll"], "most": 0.5}}
    half = x.half()
    found = measured(traced(lambda: half @ half))
    assert found == {"aclnnMatmul": {"in": ["empty.memory_format", "to.dtype"], "most": 2.0}}


def test_kernels_that_write_straight_into_their_output() -> None:
    x = matrix(64, 64)
    assert measured(traced(lambda: (x + x, x.mean(1), x.flip(1), (x > 0).all(1), x @ x, x.softmax(1)))) == {}
