"""Operands and results that lie in memory in other ways than one element behind another: the values are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from aclnn import SIGNATURES, run
from calls import CALLS
from torch.nn import functional

Layout = Callable[[torch.Tensor], torch.Tensor]


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """The second dimension's elements side by side, as in NHWC."""
    return tensor.movedim(1, -1).clone(memory_format=torch.contiguous_format).movedim(-1, 1)


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.mT.clone(memory_format=torch.contiguous_format).mT


def stepped(tensor: torch.Tensor) -> torch.Tensor:
    """Every other element of a wider tensor."""
    wide = tensor.new_zeros(*tensor.shape[:-1], 2 * tensor.shape[-1])
    view = wide[..., ::2]
    view.copy_(tensor)
    return view


def behind(tensor: torch.Tensor) -> torch.Tensor:
    """Not at the beginning of its storage."""
    view = tensor.new_zeros(tensor.numel() + 3)[3:].view(tensor.shape)
    view.copy_(tensor)
    return view


LAYOUTS: dict[str, tuple[int, Layout]] = {  # the fewest dimensions
    "channels last": (3, channels_last),
    "transposed": (2, transposed),
    "stepped": (1, stepped),
    "behind": (0, behind),
}


# The kernel decides the shape of these results: the strides of the buffer say nothing about where they lie.
DATA_DEPENDENT = {"aclnnMaskedSelect", "aclnnNonzeroV2"}


def each(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The function of a tensor, or of each in a list; anything else as it is."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, list) and value and isinstance(value[0], torch.Tensor):
        return [function(one) for one in value]
    return value


def filled(name: str) -> list[Any]:
    """A call whose floating-point inputs differ from element to element."""
    generator = torch.Generator().manual_seed(0)

    def random(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator) * 0.75 + 0.2)
        return tensor

    ways = [way for _, _, way in SIGNATURES[name]["params"]]
    return [each(value, random) if way != "out" else value for value, way in zip(CALLS[name](), ways, strict=True)]


def results(name: str, arguments: list[Any]) -> list[torch.Tensor]:
    run(name, *arguments)
    found: list[torch.Tensor] = []
    for (_, _, way), value in zip(SIGNATURES[name]["params"], arguments, strict=True):
        if way != "in":
            each(value, lambda tensor: found.append(tensor.cpu()) or tensor)  # type: ignore[func-returns-value]
    return found


def changed(name: str, layout: str) -> list[Any]:
    """The call with its tensors laid out like that."""
    fewest, function = LAYOUTS[layout]
    ways = [way for _, _, way in SIGNATURES[name]["params"]]

    def change(tensor: torch.Tensor) -> torch.Tensor:
        return function(tensor) if tensor.dim() >= fewest and tensor.numel() else tensor.clone()

    return [
        value if way == "out" and name in DATA_DEPENDENT else each(value, change)
        for value, way in zip(filled(name), ways, strict=True)
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CALLS)
def test_every_layout_gives_the_same(name: str, layout: str) -> None:
    expected = results(name, filled(name))
    found = results(name, changed(name, layout))
    for one, other in zip(found, expected, strict=True):
        near = 2e-3 if one.dtype == torch.float16 else 1e-5  # sums in another order
        torch.testing.assert_close(one, other, rtol=near, atol=near, equal_nan=True)


@pytest.mark.parametrize("name", CALLS)
def test_every_element_the_same(name: str) -> None:
    """An operand that is one element many times over, by strides of 0."""
    same, plain = filled(name), filled(name)
    for i, (_, _, way) in enumerate(SIGNATURES[name]["params"]):
        if way == "in":
            same[i] = each(same[i], lambda t: t.reshape(-1)[:1].expand(t.numel()).view(t.shape) if t.numel() else t)
            plain[i] = each(same[i], lambda t: t.clone(memory_format=torch.contiguous_format))
    for one, other in zip(results(name, same), results(name, plain), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5, equal_nan=True)


IMAGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "adaptive_avg_pool2d": lambda x: functional.adaptive_avg_pool2d(x, 2),
    "adaptive_max_pool2d": lambda x: functional.adaptive_max_pool2d(x, 2),
    "reflection_pad2d": lambda x: functional.pad(x, (1, 1, 1, 1), mode="reflect"),
    "replication_pad2d": lambda x: functional.pad(x, (1, 2, 3, 1), mode="replicate"),
    "bilinear": lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "max_pool2d": lambda x: functional.max_pool2d(x, 2),
    "conv2d": lambda x: functional.conv2d(x, torch.ones(3, 5, 3, 3, dtype=x.dtype, device=x.device)),
    "group_norm": lambda x: functional.group_norm(x, 5),
}


@pytest.mark.parametrize("name", IMAGES)
def test_images_from_channels_last(name: str) -> None:
    """`x.permute(0, 3, 1, 2)` of NHWC, which models of vision make, forward and backward."""
    values = torch.randn(2, 6, 8, 5, generator=torch.Generator().manual_seed(0))
    outcomes = []
    for device in ("cpu", "npu"):
        x = values.clone().to(device).requires_grad_()
        y = IMAGES[name](x.permute(0, 3, 1, 2))
        weight = torch.linspace(-1, 1, y.numel()).view_as(y).to(device)
        y.backward(weight.contiguous(memory_format=torch.channels_last) if device == "cpu" else weight)
        outcomes.append((y.detach().cpu(), x.grad.cpu()))
    for ours, theirs in zip(outcomes[1], outcomes[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
