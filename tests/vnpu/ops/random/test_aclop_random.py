"""random/aclop_random.cpp: choices, samples of labels, and draws with their moments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu
from aclop import check_refused, drawn, ran

I32, BOOL = torch.int32, torch.bool


def test_some_of_the_places_where_a_mask_is_true() -> None:
    x = torch.rand(30, 7, generator=torch.Generator().manual_seed(1)) < 0.5
    places, kept = ran("CustRandomChoiceWithMask", [x], (20, 2, I32), (20, BOOL), count=20, seed=1, seed2=1)
    assert kept.all() and len({tuple(row) for row in places.tolist()}) == 20
    assert all(x[int(i), int(j)] for i, j in places)


def test_choice() -> None:
    x = torch.zeros(4, 5, dtype=torch.bool)
    x.view(-1)[::3] = True
    places = {tuple(place) for place in x.nonzero().tolist()}
    for count in (3, 7, 12):
        chosen, valid = torch_npu.npu_random_choice_with_mask(x.npu(), count, 3, 1)
        rows = [tuple(row) for row, yes in zip(chosen.tolist(), valid.tolist(), strict=True) if yes]
        assert len(set(rows)) == len(rows) == min(count, len(places)) and set(rows) <= places
        assert chosen.dtype == torch.int32 and not chosen.cpu()[~valid.cpu()].any()
        assert count < len(places) or rows == sorted(places)
    seeded = [torch_npu.npu_random_choice_with_mask(x.npu(), 5, 3, 1)[0].tolist() for _ in range(2)]
    unseeded = [torch_npu.npu_random_choice_with_mask(x.npu(), 5)[0].tolist() for _ in range(6)]
    assert seeded[0] == seeded[1] and any(one != unseeded[0] for one in unseeded)


def test_sample_of_labels() -> None:
    labels = torch.tensor([1, 0, -1, 2, 0, 0, 3, 0, -1, 0], dtype=torch.int32)
    for most, share, positive in ((6, 0.5, 3), (4, 0.25, 1), (20, 0.5, 3)):
        sample = torch_npu.npu_sub_sample(labels.npu(), most, share).cpu()
        assert int((sample > 0).sum()) == positive
        assert int((sample == 0).sum()) == min(most - positive, 5)
        assert torch.equal(sample[sample >= 0], labels[sample >= 0]) and set(sample[sample < 0].tolist()) <= {-1}


def test_what_is_drawn() -> None:
    """Another draw each time, with the moments that they have, and a bit for each element of a mask."""
    normal = [ran("RandomStandardNormal", [[4096]], (4096,), seed=1, seed2=2)[0] for _ in range(2)]
    assert not torch.equal(*normal)
    assert abs(float(normal[0].mean())) < 0.1 and abs(float(normal[0].std()) - 1) < 0.1
    (uniform,) = ran("RandomUniform", [[4096]], (4096,), seed=1, seed2=2)
    assert float(uniform.min()) >= 0 and float(uniform.max()) < 1 and abs(float(uniform.mean()) - 0.5) < 0.05
    keep = torch.tensor([0.75])
    masks = [ran("DropOutGenMask", [[4096], keep], (512, torch.uint8), seed=1, seed2=2)[0] for _ in range(2)]
    assert not torch.equal(*masks)
    bits = sum(bin(int(byte)).count("1") for byte in masks[0])
    assert abs(bits / 4096 - 0.75) < 0.05
    (y,) = ran("DropOutDoMask", [torch.ones(4096), masks[0].to(torch.uint8), keep], (4096,))
    assert int((y != 0).sum()) == bits


# Operator: inputs, outputs, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "CustRandomChoiceWithMask": ([drawn(3)], [(2, 1, I32), (2, BOOL)], {"count": 2}, "x is"),
    "RandomUniform": ([[4]], ((5,),), {}, "the output"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
