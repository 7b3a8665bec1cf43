"""linalg/aclop_fourier.cpp against NumPy in float64, and refused calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from aclop import INVALID_ARGUMENT, drawn, launch, transformed

X = drawn(3, 6, 5)
Z = torch.complex(drawn(3, 6, 5), drawn(3, 6, 5))
NORMS = {None: None, 0: "backward", 1: "forward", 2: "ortho"}


def hfftn(x: Any, s: Any, axes: Any, norm: Any) -> Any:
    """NumPy has it of one dimension only."""
    swapped = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}
    return np.fft.irfftn(np.conj(x), s, axes, swapped[norm])


def ihfftn(x: Any, s: Any, axes: Any, norm: Any) -> Any:
    swapped = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}
    return np.conj(np.fft.rfftn(x, s, axes, swapped[norm]))


# Operator: its function, the input, the dtype of the result.
ALONG = {
    "FFT": (np.fft.fft, Z, torch.complex64),
    "IFFT": (np.fft.ifft, Z, torch.complex64),
    "RFFT": (np.fft.rfft, X, torch.complex64),
    "IRFFT": (np.fft.irfft, Z, torch.float32),
    "HFFT": (np.fft.hfft, Z, torch.float32),
    "IHFFT": (np.fft.ihfft, X, torch.complex64),
}
OVER = {
    "FFT": (np.fft.fftn, Z, torch.complex64),
    "IFFT": (np.fft.ifftn, Z, torch.complex64),
    "RFFT": (np.fft.rfftn, X, torch.complex64),
    "IRFFT": (np.fft.irfftn, Z, torch.float32),
    "HFFT": (hfftn, Z, torch.float32),
    "IHFFT": (ihfftn, X, torch.complex64),
}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("n", "dim"), [(None, -1), (4, 1), (9, 0)])
@pytest.mark.parametrize("name", ALONG)
def test_transforms_along_a_dimension(name: str, n: int | None, dim: int, norm: int | None) -> None:
    function, x, dtype = ALONG[name]
    expected = function(x.numpy().astype(np.complex128 if x.is_complex() else np.float64), n, dim, NORMS[norm])
    inputs = [x, None if n is None else [n], [dim], None if norm is None else [norm]]
    transformed(f"Cust{name}", inputs, expected, dtype)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("s", "dims"), [(None, [-2, -1]), ([4, 9], [0, 2]), (None, None)])
@pytest.mark.parametrize("name", OVER)
def test_transforms_over_dimensions(name: str, s: list[int] | None, dims: list[int] | None, norm: int | None) -> None:
    function, x, dtype = OVER[name]
    expected = function(x.numpy().astype(np.complex128 if x.is_complex() else np.float64), s, dims, NORMS[norm])
    for form in ("N", "2") if dims else ("N",):
        transformed(f"Cust{name}{form}", [x, s, dims, None if norm is None else [norm]], expected, dtype)


def test_integers_and_halves_are_transformed_in_float32() -> None:
    for x in (torch.arange(12).reshape(3, 4), torch.arange(12).half().reshape(3, 4)):
        transformed("CustFFT", [x, None, [-1], None], np.fft.fft(x.numpy().astype(np.float64)), torch.complex64)


def test_shifts_and_frequencies() -> None:
    for name, function in (("CustFFTShift", np.fft.fftshift), ("CustIFFTShift", np.fft.ifftshift)):
        transformed(name, [X, None], function(X.numpy()), torch.float32)
        transformed(name, [X, [0, 2]], function(X.numpy(), [0, 2]), torch.float32)
    for name, function in (("CustFFTFreq", np.fft.fftfreq), ("CustRFFTFreq", np.fft.rfftfreq)):
        for n in (7, 8):
            transformed(name, [[n], torch.tensor(0.25), None], function(n, 0.25), torch.float32)


def test_what_gradients_of_transforms_call() -> None:
    expected = np.zeros((2, 6, 7), np.float32)
    expected[:, :, :5] = X[:2].numpy()
    transformed("CustFFTShapeCopy", [X, [2, 6, 7]], expected, torch.float32)
    # All of a half spectrum but what has no other half.
    for n, last in ((8, 4), (9, 5)):
        doubled = Z.numpy().copy()
        doubled[:, :, 1:last] *= 2
        transformed("CustIRFFTDouble", [Z, [n], [-1]], doubled, torch.complex64)


REFUSED: dict[str, tuple[list[Any], torch.Tensor, dict[str, Any], str]] = {
    "CustFFT": ([X, None, [0]], X, {}, "there are 3 inputs"),
    "CustRFFTN": ([X, None, None, None], X.long(), {}, "the output is"),
    "CustFFTShift": ([X, None], X[0], {}, "the output is"),
    "CustFFTShapeCopy": ([X, [3, 6]], X[0], {}, "the output is"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, out, attributes, words = REFUSED[name]
    operands = [each.npu() if isinstance(each, torch.Tensor) else each for each in inputs]
    status, message = launch(name, operands, [torch.zeros_like(out).npu()], **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)
