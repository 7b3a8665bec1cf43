"""The short-time Fourier transform, against sums in float64."""

from __future__ import annotations

from typing import Any

import aclnn
import numpy as np
import pytest
import torch
from oracle import compare, layouts, random

POINTS, HOP = 16, 4
HANN = torch.hann_window(POINTS, dtype=torch.float64)


def by_sums(x: torch.Tensor, points: int, hop: int, window: torch.Tensor, onesided: bool) -> torch.Tensor:
    """The definition, frame by frame and bin by bin; a short window lies in the middle of the frame."""
    padded = np.zeros(points)
    start = (points - len(window)) // 2
    padded[start : start + len(window)] = window
    bins = np.arange(points // 2 + 1 if onesided else points)
    waves = np.exp(-2j * np.pi * np.outer(bins, np.arange(points)) / points) * padded
    samples = x.numpy()
    frames = [samples[..., at : at + points] @ waves.T for at in range(0, x.shape[-1] - points + 1, hop)]
    return torch.from_numpy(np.stack(frames, -1))


@pytest.mark.parametrize("onesided", [True, False])
@pytest.mark.parametrize("shape", [(40,), (3, 40), (3, 16)])
def test_frames_are_those_of_the_definition(shape: tuple[int, ...], onesided: bool) -> None:
    x = random(*shape)
    expected = by_sums(x.float().double(), POINTS, HOP, HANN.float().double(), onesided)
    for source in layouts(x.float()):
        if source.stride(-1) == 0:  # holds other values
            continue
        found = torch.stft(
            source.npu(), POINTS, HOP, window=HANN.float().npu(), center=False, onesided=onesided, return_complex=True
        )
        assert found.shape == expected.shape
        compare(torch.view_as_real(found), torch.view_as_real(expected), torch.float32, ulps=8, scale=4.0)


@pytest.mark.parametrize(
    "options",
    [
        {"hop_length": 5},
        {"center": False},
        {"normalized": True},
        {"win_length": 10, "window": torch.hamming_window(10, dtype=torch.float64)},
        {"onesided": False, "pad_mode": "constant"},
    ],
    ids=str,
)
def test_options_of_torch(options: dict[str, Any]) -> None:
    x = random(2, 50).float()
    options = {"window": HANN, "return_complex": True} | options
    expected = torch.stft(x.double(), POINTS, **options)
    options["window"] = options["window"].float().npu()
    found = torch.stft(x.npu(), POINTS, **options)
    compare(torch.view_as_real(found), torch.view_as_real(expected), torch.float32, ulps=16, scale=4.0)


def test_complex_samples_and_parts_apart() -> None:
    x = torch.complex(random(2, 40), random(2, 40, seed=1))
    window = torch.complex(HANN, torch.zeros(POINTS, dtype=torch.float64))
    expected = torch.stft(x, POINTS, HOP, window=window, center=False, onesided=False, return_complex=True)
    out = torch.zeros(2, POINTS, 7, dtype=torch.complex64).npu()
    arguments = (x.to(torch.complex64).npu(), window.to(torch.complex64).npu(), out)
    aclnn.run("aclStft", *arguments, POINTS, HOP, POINTS, False, False, True)
    compare(torch.view_as_real(out), torch.view_as_real(expected), torch.float32, ulps=16, scale=4.0)

    real = random(2, 40).float()
    parts = torch.zeros(2, POINTS // 2 + 1, 7, 2).npu()
    aclnn.run("aclStft", real.npu(), None, parts, POINTS, HOP, POINTS, False, True, False)
    ones = torch.ones(POINTS, dtype=torch.float64)
    compare(
        parts, torch.view_as_real(by_sums(real.double(), POINTS, HOP, ones, True)), torch.float32, ulps=16, scale=4.0
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"points": 41}, "parameter nFft is 41, allowed are 1 to 40"),
        ({"hop": 0}, "parameter hopLength is 0, allowed is >= 1"),
        ({"length": 17}, "parameter winLength is 17, allowed are 1 to 16"),
        ({"window": torch.ones(15)}, "parameter windowOptional has shape"),
        ({"window": torch.ones(16, dtype=torch.float64)}, "the dtype of windowOptional"),
        ({"self": torch.ones(2, 40, dtype=torch.complex64), "window": None}, "parameter onesided is true"),
        ({"self": torch.ones(1, 2, 40)}, "parameter self has"),
        ({"out": torch.zeros(2, 9, 6, dtype=torch.complex64)}, "parameter out has shape"),
        ({"out": torch.zeros(2, 9, 7)}, "parameter out has dtype"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "self": torch.ones(2, 40),
        "window": torch.ones(16),
        "out": torch.zeros(2, 9, 7, dtype=torch.complex64),
        "points": 16,
        "hop": 4,
        "length": 16,
    }
    given |= changes
    tensors = (None if t is None else t.npu() for t in (given["self"], given["window"], given["out"]))
    status, said = aclnn.first_phase(
        "aclStft", *tensors, given["points"], given["hop"], given["length"], False, True, True
    )
    assert status == aclnn.INVALID_ARGUMENT
    assert message in said
