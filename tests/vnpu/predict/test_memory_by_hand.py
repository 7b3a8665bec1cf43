"""Predicted peak memory of three models against the sum of what is alive then, written out by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).with_name("scripts")
SINGLE, HALF = 4, 2  # bytes of float32, bfloat16


def predicted(script: str, *words: str) -> dict[str, object]:
    command = [sys.executable, "-m", "torchport", "predict", str(SCRIPTS / script), "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def perceptron(layers: int, width: int, batch: int) -> int:
    """Peak where the backward pass has come to the last ReLU."""
    parameters = layers * width**2 + width
    weights_and_moments = 3 * parameters * SINGLE  # of Adam two
    saved = (1 + layers) * batch * width * SINGLE  # what goes in, and what each ReLU gives: the next layer's input
    gradients = 2 * batch * width * SINGLE  # of the last ReLU's result and of what went into it
    return weights_and_moments + saved + gradients


def decoder(layers: int, width: int, length: int, vocabulary: int) -> int:
    """Peak where AdamW updates the embedding, the largest parameter."""
    block = 4 * width**2 + 8 * width**2 + 4 * width  # attention, perceptron, two normalisations
    parameters = (2 * vocabulary + length) * width + layers * block + 2 * width
    held = 4 * parameters * HALF  # weights, gradients, two moments
    root = 2 * vocabulary * width * HALF  # the square root of the second moment, and that divided
    return held + root + length * vocabulary * HALF  # the script keeps its logits


def residual(batch: int) -> int:
    """ResNet-50 where the backward pass has come to the last block's last normalisation."""
    convolutions = [(64, 112)]  # channels and side of what each gives
    downsampling = []
    inside = 56
    for width, blocks, side in ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)):
        downsampling.append((4 * width, side))
        for block in range(blocks):
            # The stride is the second convolution's.
            convolutions += [(width, inside if block == 0 else side), (width, side), (4 * width, side)]
        inside = side
    elements = sum(channels * side**2 for channels, side in convolutions)
    # A normalisation keeps its input, and the ReLU behind it (in place) its result, which is the next one's input. That
    # of a downsampling is added and gone.
    kept = 2 * elements + sum(channels * side**2 for channels, side in downsampling)
    pooled = 64 * 56**2 * SINGLE + 64 * 9 * (56**2 // 16 + 1) * 32  # the result, and CANN's mask of 9 places
    images = 3 * 224**2
    gradients = 2 * 2048 * 7**2  # of the last block's result, and of its sum before the ReLU
    weights_and_momentum = 2 * 25_557_032 * SINGLE
    head = (2048 * 1000 + 1000) * SINGLE  # the gradient that is there already
    return batch * ((kept + images + gradients) * SINGLE + pooled) + weights_and_momentum + head


@pytest.mark.predictions
@pytest.mark.parametrize(
    ("script", "words", "by_hand"),
    [
        ("perceptron.py", (), perceptron(8, 4096, 8192)),
        ("residual.py", (), residual(256)),
        ("decoder.py", (), decoder(32, 4096, 2048, 32000)),
    ],
)
def test_peak_is_the_sum_of_live_tensors(script: str, words: tuple[str, ...], by_hand: int) -> None:
    found = predicted(script, *words)
    peak = found["one"]["peak"]  # type: ignore[index]
    assert peak["allocated"] == pytest.approx(by_hand, rel=0.01)
    print(
        f"{script}: predicted {peak['allocated']:,} bytes, by hand {by_hand:,}: {peak['allocated'] / by_hand - 1:+.3%}"
    )
    assert sum(peak["owners"].values()) + peak["rounding"] == peak["allocated"]


def test_hand_sums_tell_models_apart() -> None:
    """The control: one layer more is more than the 1 % that a prediction may be off."""
    assert perceptron(9, 4096, 8192) > 1.05 * perceptron(8, 4096, 8192)
    assert decoder(33, 4096, 2048, 32000) > 1.02 * decoder(32, 4096, 2048, 32000)
    assert residual(260) > 1.01 * residual(256)
