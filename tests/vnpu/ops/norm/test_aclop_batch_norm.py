"""norm/aclop_batch_norm.cpp: batch normalisation in its parts, against torch in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from aclop import check_refused, drawn, near, ran

X = drawn(3, 4, 5, 6)
G = drawn(3, 4, 5, 6)


def test_batch_normalization_in_its_parts() -> None:
    scale, offset = drawn(4), drawn(4)
    mean, variance = torch.zeros(4), torch.ones(4)
    wide, gamma, beta = (each.double().requires_grad_() for each in (X, scale, offset))
    running = [mean.double(), variance.double()]
    expected = F.batch_norm(wide, *running, gamma, beta, training=True, momentum=0.1, eps=1e-5)
    total, squares = ran("BNTrainingReduce", [X], (4,), (4,))
    # Summed in double and rounded once: the variance is the difference of two large numbers.
    assert torch.equal(total, X.double().sum((0, 2, 3)).float().double())
    assert torch.equal(squares, X.double().square().sum((0, 2, 3)).float().double())
    inputs = [X, total.float(), squares.float(), scale, offset, mean, variance]
    y, new_mean, new_variance, batch_mean, batch_variance = ran(
        "BNTrainingUpdate", inputs, X.shape, (4,), (4,), (4,), (4,), factor=0.1, epsilon=1e-5
    )
    near(y, expected.detach(), 1e-5)
    near(new_mean, running[0])
    near(new_variance, running[1])
    assert torch.equal(batch_mean, (total / 90).float().double())
    assert torch.equal(batch_variance, (squares / 90 - (total / 90) ** 2).float().double())
    slopes = torch.autograd.grad(expected, (wide, gamma, beta), G.double())
    means = [batch_mean.float(), batch_variance.float()]
    found = ran("BNTrainingUpdateGrad", [G, X, *means], (4,), (4,), epsilon=1e-5)
    near(found[0], slopes[1], 1e-5)
    near(found[1], slopes[2], 1e-5)
    (slope,) = ran(
        "BNTrainingReduceGrad", [G, X, *(each.float() for each in found), scale, *means], X.shape, epsilon=1e-5
    )
    near(slope, slopes[0], 1e-5)
    (infer,) = ran("BNInfer", [X, scale, offset, *means], X.shape, epsilon=1e-5)
    near(infer, expected.detach(), 1e-5)
    (back,) = ran("BNInferGrad", [G, scale, means[1]], X.shape, epsilon=1e-5)
    near(back, G.double() * (scale.double() / (means[1].double() + 1e-5).sqrt()).view(1, 4, 1, 1))


REFUSED: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "BNTrainingUpdate": ([X, *[drawn(3)] * 6], (X.shape, *[(4,)] * 4), {}, "by channel")
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
