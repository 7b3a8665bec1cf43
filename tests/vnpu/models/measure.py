"""How far a device's gradients are from the CPU's, step by step from equal weights.

Training is chaotic (a weight off by 1e-7 gives other gradients altogether after 20 steps of ResNet-18), so weights
and buffers are set to those of a float32 reference on the CPU before every step; the reference then trains on.

The figure is the relative error ‖a - b‖ / ‖b‖ of a parameter's gradient. In float32, b is the CPU's float32
gradient. In bfloat16 and float16 (autocast, with GradScaler in float16), b is a float64 gradient, and the CPU's own
error in that dtype is what the device's error is held against.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from models.family import Batch, Family, to

# A gradient this much smaller than the model's largest is rounding around a true zero: the bias of a key (softmax
# does not see it) or of a convolution before batch normalisation. Measured in float64, where such ones are 1e-16.
ZERO = 1e-10
SCALE = 2.0**10  # GradScaler's first scale: the largest power of two with which no family overflows in float16

Gradients = Mapping[str, Tensor]


@dataclasses.dataclass(frozen=True)
class Step:
    """One training step: for each parameter the device's error, and the error of the CPU (0 in float32)."""

    loss: float
    device: dict[str, float]
    cpu: dict[str, float]

    @property
    def largest(self) -> float:
        return max(self.device.values())


class Trainer:
    """A copy of a family's model on one device in one precision that gives the gradients of a step."""

    def __init__(self, family: Family, device: str, dtype: torch.dtype) -> None:
        """dtype: float32 and float64 compute in it throughout; bfloat16 and float16 are those of autocast."""
        self.family, self.device, self.dtype = family, device, dtype
        self.autocast = dtype in (torch.bfloat16, torch.float16)
        self.model: nn.Module = family.initial().to(device, torch.float32 if self.autocast else dtype)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.scaler = torch.amp.GradScaler(device, init_scale=SCALE, enabled=dtype is torch.float16)

    def gradients(self, state: Mapping[str, Tensor], batch: Batch) -> tuple[float, Gradients]:
        """Loss and gradients (float64, on the CPU) at these weights. No optimizer step is made."""
        self.model.load_state_dict(state)
        self.optimizer.zero_grad(set_to_none=True)
        batch = to(batch, self.device, torch.float64 if self.dtype is torch.float64 else torch.float32)
        # oneDNN has an LSTM in half precision only if the CPU has such instructions; ATen's own works everywhere.
        refused = self.dtype is torch.float16 or (
            self.dtype is torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
        )
        with torch.backends.mkldnn.flags(enabled=self.device != "cpu" or not refused):
            with torch.autocast(self.device, self.dtype, enabled=self.autocast):
                loss = self.family.loss(self.model, batch)
            self.scaler.scale(loss).backward()
        if self.scaler.is_enabled():
            self.scaler.unscale_(self.optimizer)
            self.scaler.update(SCALE)  # forgets that this step is unscaled
        named = self.model.named_parameters()
        return loss.item(), {name: p.grad.detach().cpu().double() for name, p in named if p.grad is not None}


def relative_error(a: Tensor, b: Tensor) -> float:
    return (torch.linalg.vector_norm(a - b) / torch.linalg.vector_norm(b)).item()


def nonzero(gradients: Gradients) -> list[str]:
    """The parameters whose true gradient is not zero."""
    norms = {name: torch.linalg.vector_norm(gradient).item() for name, gradient in gradients.items()}
    return [name for name, norm in norms.items() if norm > ZERO * max(norms.values())]


def steps(family: Family, dtype: torch.dtype, count: int | None = None, device: str = "npu") -> Iterator[Step]:
    """The training steps of a family in one precision on a device, compared."""
    reference = Trainer(family, "cpu", torch.float32)
    exact = Trainer(family, "cpu", torch.float64)
    compared = {place: Trainer(family, place, dtype) for place in (device, "cpu")}
    for step in range(family.steps if count is None else count):
        state = {name: tensor.clone() for name, tensor in reference.model.state_dict().items()}
        batch = family.batch_of(step)
        _, true = exact.gradients(state, batch)
        _, single = reference.gradients(state, batch)
        loss, mine = compared[device].gradients(state, batch)
        names = nonzero(true)
        if dtype is torch.float32:
            yield Step(loss, {name: relative_error(mine[name], single[name]) for name in names}, {})
        else:
            _, theirs = compared["cpu"].gradients(state, batch)
            yield Step(
                loss,
                {name: relative_error(mine[name], true[name]) for name in names},
                {name: relative_error(theirs[name], true[name]) for name in names},
            )
        reference.optimizer.step()


@dataclasses.dataclass(frozen=True)
class Summary:
    """Errors of all parameters over all steps."""

    steps: int
    median: float
    largest: float
    within: float
    """Share of the steps in which every parameter's error is at most 1e-4."""
    ratio: float
    """Error of the device over that of the CPU, median over parameters and steps (0 in float32)."""
    ratio_p90: float

    @classmethod
    def of(cls, measured: list[Step]) -> Summary:
        errors = [error for step in measured for error in step.device.values()]
        ratios = sorted(
            step.device[name] / step.cpu[name] for step in measured for name in step.cpu if step.cpu[name] > 0
        )
        return cls(
            len(measured),
            statistics.median(errors),
            max(errors),
            sum(step.largest <= 1e-4 for step in measured) / len(measured),
            statistics.median(ratios) if ratios else 0.0,
            ratios[len(ratios) * 9 // 10] if ratios else 0.0,
        )
