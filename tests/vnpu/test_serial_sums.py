"""A sum in another order of summation than the CPU's is as good a one; a sum that is off by more is wrong."""

from __future__ import annotations

import numpy
import pytest
import torch

from torchport.compare.scores import score_result

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
