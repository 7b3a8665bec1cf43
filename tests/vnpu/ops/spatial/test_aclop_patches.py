"""spatial/aclop_patches.cpp: columns of images and back, against torch in float64, and refused calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from aclop import check_refused, drawn, near, ran

I32 = torch.int32
IMAGE, LAST = drawn(2, 3, 6, 8), drawn(2, 6, 8, 3)
COLUMNS: dict[str, Any] = {"kernel_size": [2, 2], "dilation": [1, 1], "padding": [0, 0], "stride": [1, 1]}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, I32])
def test_columns_of_any_dtype(dtype: torch.dtype) -> None:
    x = (IMAGE * 10).to(dtype)
    (y,) = ran("CustIm2col", [x], (2, 3, 4, 35, dtype), ksizes=[2], strides=[1], dilations=[1], pads=[0])
    assert torch.equal(y.flatten(1, 2), F.unfold(x.double(), 2))


def test_padding_to_the_same_size() -> None:
    how: dict[str, Any] = {"ksizes": [3, 2], "strides": [2, 2], "dilations": [1, 1]}
    (y,) = ran("CustIm2col", [IMAGE], (2, 3, 6, 12), padding_mode="SAME", **how)
    near(y.flatten(1, 2), F.unfold(F.pad(IMAGE.double(), (0, 0, 0, 1)), (3, 2), stride=2))
    (y,) = ran("CustIm2col", [IMAGE], (2, 3, 6, 8), padding_mode="VALID", pads=[5, 5], **how)
    near(y.flatten(1, 2), F.unfold(IMAGE.double(), (3, 2), stride=2))
    attributes = {"ksizes": [1, 1, 3, 2], "strides": [1, 1, 2, 2], "rates": [1, 1, 1, 1], "padding": "SAME"}
    (y,) = ran("ExtractImagePatches", [IMAGE], (2, 18, 3, 4), **attributes)
    expected = F.unfold(F.pad(IMAGE.double(), (0, 0, 0, 1)), (3, 2), stride=2).view(2, 3, 6, 3, 4)
    near(y, expected.transpose(1, 2).reshape(y.shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_columns_become_an_image(dtype: torch.dtype) -> None:
    """Overlapping ones are added up in float32 and rounded once."""
    x = drawn(2, 3, 4, 35).to(dtype)
    (y,) = ran("Col2im", [x, [6, 8]], (2, 3, 6, 8, dtype), **COLUMNS)
    exact = F.fold(x.double().flatten(1, 2), (6, 8), 2)
    assert torch.equal(y, exact.to(dtype).double()) if dtype == torch.float16 else torch.allclose(y, exact, atol=1e-6)


PATCHES: dict[str, Any] = {"ksizes": [1, 1, 2, 2], "strides": [1, 1, 1, 1], "rates": [1, 1, 1, 1], "padding": "VALID"}


# Operator: inputs, outputs, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "CustIm2col": ([IMAGE], [(2, 3, 4, 35)], {"ksizes": [2, 9]}, "reaches over 9 pixels"),
    "CustIm2col 2": ([IMAGE], [(2, 3, 4, 34)], {"ksizes": [2]}, "the output is"),
    "CustIm2col 3": ([IMAGE], [(2, 3, 4, 35)], {"ksizes": [2], "padding_mode": "FULL"}, '"FULL"'),
    "Col2im": ([drawn(2, 3, 4, 20), [6, 6]], [(2, 3, 6, 6)], COLUMNS, "x is"),
    "Col2im 2": ([drawn(2, 3, 4, 20), [6, 5]], [(2, 3, 6, 5)], {**COLUMNS, "stride": [0, 1]}, "stride has the value 0"),
    "ExtractImagePatches": ([IMAGE], [(2, 12, 5, 7)], {**PATCHES, "ksizes": [1, 2, 2, 1]}, "ksizes is not 1, 1"),
    "ExtractImagePatches 2": ([IMAGE], [(2, 12, 5, 7)], {**PATCHES, "padding": "FULL"}, "SAME and VALID"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name.split()[0], inputs, sizes, attributes, words)
