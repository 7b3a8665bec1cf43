"""`combine_grad`: gradients, parameters and optimizer states of a group in one tensor per dtype.

Autograd leaves each gradient where it likes. After a backward pass one operator copies them next to each other;
unscaling, the check for overflow, clipping, the all-reduce and the optimizer's step then take one operator each in
place of one per parameter. The parameters' gradients become views of the combined tensor.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from torchport.amp.scaler import LossScaler

# Optimizers whose update of an element depends on that element alone: one step on the combined tensor is a step on
# each parameter. LAMB, LARS, Adafactor, LBFGS look at whole tensors. By exact type: a subclass may do anything.
ELEMENTWISE = ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "ASGD")


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Slot:
    """A parameter of the model (`source`) and what the optimizer updates for it (`target`: itself or its master)."""

    group: int
    source: Parameter
    target: Parameter


class Bucket:
    """The slots of one optimizer group that agree in dtype and device, laid out in one tensor.

    gradients   of the targets, flat
    parameters  the targets themselves, flat: each target's data is a view of it
    sources     the model's parameters, flat, where they are not the targets; else None
    """

    def __init__(self, slots: Sequence[Slot], average: bool) -> None:
        self.slots = slots
        self.sizes = [slot.target.numel() for slot in slots]
        self._average = average
        self.parameters = self._flatten([slot.target for slot in slots])
        separate = slots[0].source is not slots[0].target
        self.sources = self._flatten([slot.source for slot in slots]) if separate else None
        self.gradients = torch.zeros_like(self.parameters)
        self.views = self.split_by_slot(self.gradients)
        self.state: FlatState | None = None

    def _flatten(self, parameters: Sequence[Parameter]) -> Tensor:
        flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        for parameter, view in zip(parameters, self.split_by_slot(flat), strict=True):
            parameter.data = view
        return flat

    def split_by_slot(self, flat: Tensor) -> list[Tensor]:
        """Views of `flat`, each with its slot's shape."""
        return [piece.view(slot.target.shape) for piece, slot in zip(flat.split(self.sizes), self.slots, strict=True)]

    def is_valid_for(self, slots: Sequence[Slot]) -> bool:
        """Whether this bucket has just these slots, and nobody has moved a parameter's data elsewhere."""
        return (
            len(slots) == len(self.slots)
            and all(map(lambda a, b: a is b, slots, self.slots))
            and all(_storage(slot.target) == _storage(self.parameters) for slot in slots)
            and (self.sources is None or all(_storage(s.source) == _storage(self.sources) for s in slots))
        )

    def collect_gradients(self, scaler: LossScaler, stash: Mapping[Slot, Tensor | None]) -> None:
        """Take the sources' gradients in, unscale them, add `stash`; the targets' gradients are views from here on.

        A parameter that had no part in this pass nor in an earlier one keeps no gradient.
        """
        fresh = [slot.source.grad for slot in self.slots]
        kept = [stash[slot] for slot in self.slots]
        pieces = [
            torch.zeros(size, dtype=slot.source.dtype, device=slot.source.device) if grad is None else grad.reshape(-1)
            for grad, size, slot in zip(fresh, self.sizes, self.slots, strict=True)
        ]
        combined = torch.cat(pieces)
        if self._average:
            torch.distributed.all_reduce(combined)
            combined.div_(torch.distributed.get_world_size())
        combined = combined.to(self.gradients.dtype)
        scaler.unscale_([combined])
        if any(grad is not None for grad in kept):
            for grad, view in zip(kept, self.views, strict=True):
                if grad is None:
                    view.zero_()
                elif grad is not view:  # the user has put another tensor there
                    view.copy_(grad)
            self.gradients.add_(combined)
        else:
            self.gradients.copy_(combined)
        for slot, new, old, view in zip(self.slots, fresh, kept, self.views, strict=True):
            slot.target.grad = None if new is None and old is None else view

    def is_complete(self) -> bool:
        """Whether every target's gradient is its view of the combined tensor."""
        return all(slot.target.grad is view for slot, view in zip(self.slots, self.views, strict=True))


def _storage(tensor: Tensor) -> int:
    # Not data_ptr(), for which torch_npu 2.13 waits until its queue is empty.
    return tensor.untyped_storage()._cdata  # type: ignore[no-any-return]


class FlatState:
    """An optimizer's state for the one parameter that stands for a bucket.

    `optimizer.state` keeps an entry per target, whose tensors are views of this one's.
    """

    def __init__(self, bucket: Bucket, optimizer: Any) -> None:
        self.parameter = Parameter(bucket.parameters)
        self._bucket = bucket
        self._shown: dict[str, Any] = {}
        self._views: list[dict[str, Any]] = [optimizer.state.get(slot.target, {}) for slot in bucket.slots]
        self.values = self._joined()

    def _joined(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name in self._views[0]:
            each = [view[name] for view in self._views]
            if torch.is_tensor(each[0]) and each[0].dim() > 0:
                values[name] = torch.cat([value.reshape(-1) for value in each])
            else:
                values[name] = each[0].clone() if torch.is_tensor(each[0]) else each[0]
        return values

    @staticmethod
    def can_join_states(bucket: Bucket, optimizer: Any) -> bool:
        """Whether the states of a bucket's targets can be joined: same entries, equal step counts."""
        states = [optimizer.state.get(slot.target, {}) for slot in bucket.slots]
        if any(set(state) != set(states[0]) for state in states):
            return False
        scalars = [name for name, value in states[0].items() if not (torch.is_tensor(value) and value.dim() > 0)]
        return all(bool(state[name] == states[0][name]) for state in states for name in scalars)

    def is_current(self, optimizer: Any) -> bool:
        """Whether nobody has replaced an entry of `optimizer.state`, as load_state_dict does."""
        return all(
            optimizer.state.get(slot.target) is view for slot, view in zip(self._bucket.slots, self._views, strict=True)
        )

    def update_optimizer_state(self, optimizer: Any) -> None:
        """Let `optimizer.state` see what a step has made."""
        for name, value in self.values.items():
            large = torch.is_tensor(value) and value.dim() > 0
            if large and self._shown.get(name) is value:
                continue  # the views are there
            self._shown[name] = value
            for view, piece in zip(
                self._views, self._bucket.split_by_slot(value) if large else [value] * len(self._views), strict=True
            ):
                view[name] = piece
        for slot, view in zip(self._bucket.slots, self._views, strict=True):
            optimizer.state[slot.target] = view

    def separate_step_counts(self) -> None:
        """Give each target a step count of its own, which a step on single parameters would count up."""
        for view in self._views:
            for name, value in view.items():
                if torch.is_tensor(value) and value.dim() == 0:
                    view[name] = value.clone()


def make_buckets(slots: Sequence[Slot], buckets: list[Bucket], average: bool) -> list[Bucket]:
    """Buckets for the slots whose parameters train; those of `buckets` that still fit are kept."""
    sorted_out: defaultdict[Any, list[Slot]] = defaultdict(list)
    for slot in slots:
        if slot.target.requires_grad:
            sorted_out[slot.group, slot.source.dtype, slot.target.dtype, slot.target.device].append(slot)
    found = []
    for position, wanted in enumerate(sorted_out.values()):
        known = buckets[position] if position < len(buckets) else None
        found.append(known if known is not None and known.is_valid_for(wanted) else Bucket(wanted, average))
    return found


def step_fused(optimizer: Any, step: Callable[[], Any], buckets: Sequence[Bucket]) -> bool:
    """Do `optimizer`'s step on the combined tensors. False, with nothing done, where that is not the same.

    That is for optimizers that are not elementwise, for parameters without gradient, and for states that differ
    among the parameters of a group.
    """
    if not buckets or not _is_elementwise(optimizer) or not _covered(optimizer, buckets):
        _part(buckets)
        return False
    for bucket in buckets:
        if bucket.state is None or not bucket.state.is_current(optimizer):
            if not FlatState.can_join_states(bucket, optimizer):
                _part(buckets)
                return False
            bucket.state = FlatState(bucket, optimizer)
    flat = [(bucket, bucket.state) for bucket in buckets if bucket.state is not None]
    groups, states = optimizer.param_groups, optimizer.state
    singles = [group["params"] for group in groups]
    joined: list[list[Parameter]] = [[] for _ in groups]
    optimizer.state = defaultdict(dict)
    for bucket, state in flat:
        state.parameter.grad = bucket.gradients
        joined[bucket.slots[0].group].append(state.parameter)
        optimizer.state[state.parameter] = state.values
    for group, parameters in zip(groups, joined, strict=True):
        group["params"] = parameters
    try:
        step()
    finally:
        for _, state in flat:
            state.values = optimizer.state[state.parameter]
        optimizer.state = states
        for group, parameters in zip(groups, singles, strict=True):
            group["params"] = parameters
    for _, state in flat:
        state.update_optimizer_state(optimizer)
    return True


def _part(buckets: Sequence[Bucket]) -> None:
    for bucket in buckets:
        if bucket.state is not None:
            bucket.state.separate_step_counts()
            bucket.state = None


def _covered(optimizer: Any, buckets: Sequence[Bucket]) -> bool:
    """Whether the buckets hold every parameter of the optimizer that has a gradient, and each of theirs has one."""
    in_buckets = sum(len(bucket.slots) for bucket in buckets)
    with_grad = sum(p.grad is not None for group in optimizer.param_groups for p in group["params"])
    return in_buckets == with_grad and all(bucket.is_complete() for bucket in buckets)


def _is_elementwise(optimizer: Any) -> bool:
    kind = type(optimizer)
    return getattr(kind, "is_elementwise", False) or (
        kind.__name__ in ELEMENTWISE and getattr(torch.optim, kind.__name__, None) is kind
    )
