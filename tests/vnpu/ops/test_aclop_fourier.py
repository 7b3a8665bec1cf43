"""Operators that MindSpore has kernels of its own for on the AI CPU: Fourier transforms, traces; and norms, singular values
and scattering by the old API. Against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from aclop import INVALID_ARGUMENT, drawn, launch, near, ran

X = drawn(3, 6, 5)
Z = torch.complex(drawn(3, 6, 5), drawn(3, 6, 5))
NORMS = {None: None, 0: "backward", 1: "forward", 2: "ortho"}


def transformed(name: str, inputs: list[Any], expected: np.ndarray[Any, Any], dtype: torch.dtype) -> None:
    out = torch.zeros(expected.shape, dtype=dtype).npu()
    operands = [value.npu() if isinstance(value, torch.Tensor) else value for value in inputs]
    status, message = launch(name, operands, [out])
    assert status == 0, message
    np.testing.assert_allclose(out.cpu().numpy(), expected, rtol=2e-5, atol=2e-5)


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
    expected = function(
        x.numpy().astype(np.complex128 if x.is_complex() else np.float64), n, dim, NORMS[norm]
    )
    inputs = [x, None if n is None else [n], [dim], None if norm is None else [norm]]
    transformed(f"Cust{name}", inputs, expected, dtype)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("s", "dims"), [(None, [-2, -1]), ([4, 9], [0, 2]), (None, None)])
@pytest.mark.parametrize("name", OVER)
def test_transforms_over_dimensions(
    name: str, s: list[int] | None, dims: list[int] | None, norm: int | None
) -> None:
    function, x, dtype = OVER[name]
    expected = function(
        x.numpy().astype(np.complex128 if x.is_complex() else np.float64), s, dims, NORMS[norm]
    )
    for form in ("N", "2") if dims else ("N",):
        transformed(f"Cust{name}{form}", [x, s, dims, None if norm is None else [norm]], expected, dtype)


def test_integers_and_halves_are_transformed_in_float32() -> None:
    for x in (torch.arange(12).reshape(3, 4), torch.arange(12).half().reshape(3, 4)):
        transformed(
            "CustFFT", [x, None, [-1], None], np.fft.fft(x.numpy().astype(np.float64)), torch.complex64
        )


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


@pytest.mark.parametrize(("offset", "axis1", "axis2"), [(0, 1, 0), (-2, 1, 2), (1, -1, 0)])
def test_a_trace_and_its_gradient(offset: int, axis1: int, axis2: int) -> None:
    expected = torch.from_numpy(np.trace(X.double().numpy(), offset, axis1, axis2))
    near(ran("CustTraceV2", [X, [offset], [axis1], [axis2]], tuple(expected.shape))[0], expected)
    slope = drawn(*expected.shape)
    x = X.double().requires_grad_()
    (x.diagonal(offset, axis1, axis2).sum(-1) * slope).sum().backward()
    (found,) = ran("CustTraceV2Grad", [slope, [3, 6, 5], [offset], [axis1], [axis2]], (3, 6, 5))
    near(found, x.grad)


@pytest.mark.parametrize("full", [False, True])
def test_singular_values(full: bool) -> None:
    columns = 6 if full else 5
    sigma, u, v = ran("Svd", [X], (3, 5), (3, 6, columns), (3, 5, 5), full_matrices=full, compute_uv=True)
    near(u[..., :5] @ sigma.diag_embed() @ v.mT, X.double(), 2e-5)
    near(u.mT @ u, torch.eye(columns).expand(3, -1, -1), 2e-5)
    near(ran("Svd", [X], (3, 5), compute_uv=False)[0], sigma, 2e-5)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 6.5, float("inf"), -float("inf")])
@pytest.mark.parametrize("axes", [[], [1], [0, -1]])
def test_norms(p: float, axes: list[int]) -> None:
    expected = torch.linalg.vector_norm(X.double(), p, axes or None, True)
    (found,) = ran("LpNormV2", [X], tuple(expected.shape), p=p, axes=axes, keepdim=True, epsilon=1e-12)
    near(found, expected, 2e-5)


def test_what_is_no_number_and_conjugates() -> None:
    x = torch.tensor([1.0, float("nan"), -float("inf"), 0.0])
    assert ran("IsNan", [x], (4, torch.bool))[0].tolist() == [0, 1, 0, 0]
    transformed("Conj", [Z], np.conj(Z.numpy()), torch.complex64)
    slopes = torch.tensor([-1.5, 0.25, 1.0, 8.0])
    near(ran("Digamma", [slopes], (4,))[0], torch.digamma(slopes.double()))


def test_the_gradient_of_a_root() -> None:
    root, slope = drawn(3, 4).abs() + 1, drawn(3, 4)
    near(ran("SqrtGrad", [root, slope], (3, 4))[0], slope.double() / (2 * root.double()))


@pytest.mark.parametrize("axis", [0, -1])
def test_rows_are_added_along_an_axis(axis: int) -> None:
    data, places = drawn(4, 5), torch.tensor([3, 0, 3])
    updates = drawn(*((3, 5) if axis == 0 else (4, 3)))
    (found,) = ran("InplaceIndexAdd", [data, places, updates], (4, 5), axis=axis)
    expected = data.double()
    for i, place in enumerate(places):
        expected.select(axis, int(place)).add_(updates.double().select(axis, i))
    near(found, expected)


@pytest.mark.parametrize("reduction", ["none", "add", "mul"])
def test_elements_are_scattered_along_an_axis(reduction: str) -> None:
    data, updates, places = drawn(4, 5), drawn(2, 5), torch.tensor([[0, 1, 2, 3, 0], [-1, 3, 1, 2, 0]])
    (found,) = ran("ScatterElements", [data, places, updates], (4, 5), axis=0, reduction=reduction)
    expected = data.double()
    if reduction == "none":
        places, updates = places[:, :4], updates[:, :4]  # the last column writes one place twice
        found, expected = found[:, :4], expected[:, :4].clone()
    for i in range(places.shape[0]):
        for j in range(places.shape[1]):
            value, k = updates[i, j].double(), int(places[i, j])
            before = expected[k, j]
            expected[k, j] = {"none": value, "add": before + value, "mul": before * value}[reduction]
    near(found, expected)


REFUSED: dict[str, tuple[list[Any], torch.Tensor, dict[str, Any], str]] = {
    "CustFFT": ([X, None, [0]], X, {}, "there are 3 inputs"),
    "CustRFFTN": ([X, None, None, None], X.long(), {}, "the output is"),
    "CustFFTShift": ([X, None], X[0], {}, "the output is"),
    "CustFFTShapeCopy": ([X, [3, 6]], X[0], {}, "the output is"),
    "CustTraceV2": ([X[0, 0], [0], [0], [0]], X[0, 0], {}, "expected 2 dimensions or more"),
    "IsNan": ([X], X[0], {}, "the output is"),
    "Digamma": ([X], X[0], {}, "the output is"),
    "InplaceIndexAdd": ([X[0], X[0, 0].long(), X[0]], X[0], {"axis": 0}, "the updates is"),
    "Conj": ([Z], Z[0], {}, "the output is"),
    "Svd": ([X.half()], X.half(), {}, "no dtype that the operator takes"),
    "ScatterElements": ([X, X.long(), X], X, {"reduction": "min"}, 'reduction is "min"'),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, out, attributes, words = REFUSED[name]
    operands = [each.npu() if isinstance(each, torch.Tensor) else each for each in inputs]
    status, message = launch(name, operands, [torch.zeros_like(out).npu()], **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)
