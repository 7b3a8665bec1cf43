"""linalg/aclop_spectrum.cpp: transforms of the last dimensions and of windows, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclop import called, check_refused, drawn
from solutions import near

C64 = torch.complex64


@pytest.mark.parametrize("norm", ["backward", "forward", "ortho"])
@pytest.mark.parametrize("dims", [1, 3])
def test_transforms_of_the_last_dimensions(dims: int, norm: str) -> None:
    x, axes = drawn(2, 3, 4, 5), list(range(-dims, 0))
    z = torch.complex(x, x.flip(0))
    how: dict[str, Any] = {"signal_ndim": dims, "norm": norm}
    for inverse, transform in ((False, torch.fft.fftn), (True, torch.fft.ifftn)):
        (y,) = called("CustFFTWithSize", [z], (2, 3, 4, 5, C64), real=False, inverse=inverse, **how)
        near(y, transform(z, dim=axes, norm=norm))
    (half,) = called("CustFFTWithSize", [x], (2, 3, 4, 3, C64), real=True, inverse=False, onesided=True, **how)
    near(half, torch.fft.rfftn(x, dim=axes, norm=norm))
    (whole,) = called("CustFFTWithSize", [x], (2, 3, 4, 5, C64), real=True, inverse=False, onesided=False, **how)
    near(whole, torch.fft.fftn(x, dim=axes, norm=norm))
    (back,) = called(
        "CustFFTWithSize",
        [half],
        x.shape,
        real=True,
        inverse=True,
        onesided=True,
        signal_sizes=list(x.shape[-dims:]),
        **how,
    )
    near(back, x)
    (back,) = called("CustFFTWithSize", [whole], x.shape, real=True, inverse=True, onesided=False, **how)
    near(back, x)
    (back,) = called("CustFFTWithSize", [half], (2, 3, 4, 4), real=True, inverse=True, onesided=True, **how)
    near(back, torch.fft.irfftn(half, dim=axes, norm=norm))


@pytest.mark.parametrize("half", [False, True])
def test_transforms_of_windows(half: bool) -> None:
    x, window = drawn(2, 20), drawn(6)
    rows = torch.stack([x[:, i : i + 8] for i in range(0, 13, 3)], 1) * torch.nn.functional.pad(window, (1, 1))
    expected = (torch.fft.rfft if half else torch.fft.fft)(rows.double()).mT / 8**0.5
    how = {"n_fft": 8, "hop_length": 3, "win_length": 6, "normalized": True, "onesided": half}
    sizes = tuple(expected.shape)
    (y,) = called("STFT", [x, window], (*sizes, 2), return_complex=False, **how)
    near(y, torch.view_as_real(expected))
    near(called("STFT", [x, window], (*sizes, C64), return_complex=True, **how)[0], expected)


# Operator: inputs, outputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[Any], list[tuple[Any, ...]], dict[str, Any], str]] = {
    "CustFFTWithSize": ([drawn(3, 2)], [(3, 2, C64)], {"signal_ndim": 3, "real": True}, "signal_ndim is 3"),
    "STFT": ([drawn(6)], [(4, 1, 2)], {"n_fft": 8, "return_complex": False}, "n_fft"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
