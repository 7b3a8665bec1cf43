"""The usual losses on the NPU: value and gradient against float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

Loss = Callable[..., Tensor]
GENERATOR = torch.Generator().manual_seed(3)
ROWS, CLASSES = 12, 7
CLASS = torch.randint(CLASSES, (ROWS,), generator=GENERATOR)
CLASS_OR_IGNORED = CLASS.clone()
CLASS_OR_IGNORED[::4] = -100
VALUE = torch.randn(ROWS, CLASSES, generator=GENERATOR)
PROBABILITY = VALUE.softmax(dim=1)
BETWEEN_0_AND_1 = torch.rand(ROWS, CLASSES, generator=GENERATOR)
SIGN = VALUE[:, 0].sign()
WEIGHT = torch.rand(CLASSES, generator=GENERATOR) + 0.5

# name: (loss of (x, target, **options), target, options); x is made from logits by `prepare`.
LOSSES: dict[str, tuple[Loss, Tensor, dict]] = {
    "cross_entropy": (functional.cross_entropy, CLASS, {}),
    "cross_entropy.ignored": (functional.cross_entropy, CLASS_OR_IGNORED, {}),
    "cross_entropy.weighted": (functional.cross_entropy, CLASS, {"weight": WEIGHT}),
    "cross_entropy.smooth": (functional.cross_entropy, CLASS, {"label_smoothing": 0.1}),
    "cross_entropy.probabilities": (functional.cross_entropy, PROBABILITY, {}),
    "nll": (lambda x, y, **o: functional.nll_loss(x.log_softmax(1), y, **o), CLASS_OR_IGNORED, {}),
    "nll.weighted": (lambda x, y, **o: functional.nll_loss(x.log_softmax(1), y, **o), CLASS, {"weight": WEIGHT}),
    "mse": (functional.mse_loss, VALUE, {}),
    "l1": (functional.l1_loss, VALUE, {}),
    "smooth_l1": (functional.smooth_l1_loss, VALUE, {"beta": 0.5}),
    "huber": (functional.huber_loss, VALUE, {"delta": 0.7}),
    "bce": (lambda x, y, **o: functional.binary_cross_entropy(x.sigmoid(), y, **o), BETWEEN_0_AND_1, {}),
    "bce_with_logits": (functional.binary_cross_entropy_with_logits, BETWEEN_0_AND_1, {}),
    "bce_with_logits.weighted": (
        functional.binary_cross_entropy_with_logits,
        BETWEEN_0_AND_1,
        {"weight": WEIGHT, "pos_weight": WEIGHT},
    ),
    "kl": (lambda x, y, **o: functional.kl_div(x.log_softmax(1), y, **o), PROBABILITY, {}),
    "kl.log_target": (
        lambda x, y, **o: functional.kl_div(x.log_softmax(1), y, log_target=True, **o),
        PROBABILITY.log(),
        {},
    ),
    "hinge": (lambda x, y, **o: functional.hinge_embedding_loss(x[:, 0], y, **o), SIGN, {}),
    "soft_margin": (lambda x, y, **o: functional.soft_margin_loss(x[:, 0], y, **o), SIGN, {}),
    "cosine": (lambda x, y, **o: functional.cosine_embedding_loss(x, x.flip(0) * x, y, **o), SIGN, {"margin": 0.1}),
}
# Relative to the largest value: the spacing of the dtype times the few roundings of a loss.
TOLERANCE = {torch.float32: 3e-6, torch.bfloat16: 3e-2, torch.float16: 4e-3}


def value_and_gradient(
    name: str, reduction: str, device: str, dtype: torch.dtype, start: Tensor
) -> tuple[Tensor, Tensor]:
    def place(x: Tensor) -> Tensor:
        return x.to(device, dtype) if x.is_floating_point() else x.to(device)

    loss, target, options = LOSSES[name]
    options = {key: place(x) if isinstance(x, Tensor) else x for key, x in options.items()}
    x = place(start).requires_grad_()
    value = loss(x, place(target), reduction=reduction, **options)
    (value * torch.linspace(1, 2, value.numel()).to(value).view_as(value)).sum().backward()
    assert x.grad is not None
    return value.detach().cpu().double(), x.grad.cpu().double()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradient(name: str, reduction: str, dtype: torch.dtype) -> None:
    if name.startswith("kl") and reduction == "mean":
        reduction = "batchmean"  # "mean" of kl_div warns that it is not the divergence
    start = torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(4)).to(dtype)
    expected = value_and_gradient(name, reduction, "cpu", torch.float64, start)
    actual = value_and_gradient(name, reduction, "npu", dtype, start)
    for mine, true in zip(actual, expected, strict=True):
        torch.testing.assert_close(mine, true, rtol=0, atol=TOLERANCE[dtype] * true.abs().max().item())
