"""A sum in another order of summation than the CPU's is as good a one; a sum that is off by more is wrong."""

from __future__ import annotations

import numpy
import pytest
import torch

from torchport.compare.scores import score_result
from torchport.record.oracles import find_reference

TERMS = 4096


GIVEN = numpy.random.default_rng(0).standard_normal((TERMS, 64)).astype(numpy.float32)


@pytest.mark.parametrize("factor", [1.0, 1 + 3e-5])
def test_one_number_after_the_other(factor: float) -> None:
    given = torch.from_numpy(GIVEN)
    serial = torch.from_numpy(numpy.cumsum(GIVEN, axis=0)[-1] * numpy.float32(factor))
    found = score_result(torch, serial, given.sum(0), given.double().sum(0), 2.0**-24, TERMS)
    assert found.wrong is (factor != 1.0)


def test_numbers_that_are_not_summed_have_no_such_error() -> None:
    right = torch.from_numpy(GIVEN).double().sum(0)
    off = (right * (1 + 2e-6)).float()
    assert score_result(torch, off, right.float(), right, 2.0**-24).wrong
    assert not score_result(torch, off, right.float(), right, 2.0**-24, TERMS).wrong


@pytest.mark.parametrize(
    ("got", "saturates", "wrong"), [(65504, False, True), (65504, True, False), (float("inf"), False, False)]
)
def test_the_largest_number_in_place_of_infinity_is_wrong(got: float, saturates: bool, wrong: bool) -> None:
    """It hides an overflow from a GradScaler; older chips have no infinity."""
    wide = torch.tensor([1.0, 7e4, 2.0], dtype=torch.float64)
    given = torch.tensor([1.0, got, 2.0], dtype=torch.float16)
    found = score_result(torch, given, wide.half(), wide, 2.0**-11, saturates=saturates)
    assert found.wrong is wrong


def test_what_rounds_to_infinity_or_to_the_largest_number_is_either() -> None:
    wide = torch.tensor([1.0, 65521.0, 2.0], dtype=torch.float64)
    given = torch.tensor([1.0, 65504.0, 2.0], dtype=torch.float16)
    assert not score_result(torch, given, wide.half(), wide, 2.0**-11).wrong


@pytest.mark.parametrize("tracker", [0, 1, 2])
@pytest.mark.parametrize(("scale", "overflow"), [(1024.0, 0.0), (1024.0, 1.0), (2.0**127, 0.0)])
def test_the_reference_of_the_scale_is_what_torch_computes(scale: float, tracker: int, overflow: float) -> None:
    given = [torch.tensor([scale]), torch.tensor([tracker], dtype=torch.int32), torch.tensor([overflow])]
    numbers = (2.0, 0.5, 3)
    made = find_reference("aten::_amp_update_scale_", on_npu=True, tanh=False)(
        torch, *(one.clone() for one in given), *numbers
    )
    torch.ops.aten._amp_update_scale_(*given, *numbers)
    assert [one.tolist() for one in made] == [one.tolist() for one in given[:2]]
