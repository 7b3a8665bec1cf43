"""What a model family is: a module, batches for it, and the loss of one batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Batch = tuple[Tensor, ...]


def at_least_float32(x: Tensor) -> Tensor:
    """Losses start here: the CPU's autocast widens their operands, torch_npu's leaves some of them narrow, and this is
    about how both compute, not about what they choose to compute."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def cross_entropy(model: nn.Module, batch: Batch) -> Tensor:
    """The loss of a classifier: the last tensor of the batch holds the classes, the others are the arguments."""
    *arguments, classes = batch
    logits = at_least_float32(model(*arguments))
    return functional.cross_entropy(logits.flatten(0, -2), classes.flatten())


@dataclasses.dataclass(frozen=True)
class Family:
    """A model of one architecture.

    name: what tests and tables call it.
    build: the module in float32 on the CPU, in training mode.
    batch: random tensors on the CPU; the loss hands them to the module.
    loss: the scalar that training minimises.
    steps: how many training steps are compared.
    """

    name: str
    build: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], Batch]
    loss: Callable[[nn.Module, Batch], Tensor] = cross_entropy
    steps: int = 5

    def initial(self) -> nn.Module:
        """The module with the same weights in every process."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(20)
            return self.build().train()

    def batch_of(self, step: int) -> Batch:
        """The batch of a training step, the same in every process."""
        return self.batch(torch.Generator().manual_seed(1000 + step))


def to(batch: Batch, device: str, floating: torch.dtype = torch.float32) -> Batch:
    """The batch on another device; its floating point tensors in `floating`."""
    return tuple(x.to(device, floating) if x.is_floating_point() else x.to(device) for x in batch)
