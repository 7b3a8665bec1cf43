"""Batch norm over all ranks, under apex's names."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class SyncBatchNorm(nn.SyncBatchNorm):  # type: ignore[misc]
    """torch's SyncBatchNorm with apex's extras.

    channel_last: channels are the last dimension. `forward(input, z)` adds `z` after normalizing; fuse_relu: then relu.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        channel_last: bool = False,
        fuse_relu: bool = False,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, process_group)
        self.channel_last = channel_last
        self.fuse_relu = fuse_relu

    def forward(self, input: Tensor, z: Tensor | None = None) -> Tensor:
        """Normalize; shape stays."""
        last = self.channel_last and input.dim() > 2
        output = super().forward(input.movedim(-1, 1) if last else input)
        output = output.movedim(1, -1) if last else output
        output = output if z is None else output + z
        return output.relu() if self.fuse_relu else output


def convert_syncbn_model(module: nn.Module, process_group: Any = None, channel_last: bool = False) -> nn.Module:
    """`module` with every batch norm in it replaced by a SyncBatchNorm that shares its parameters and buffers."""
    converted = module
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        converted = SyncBatchNorm(
            module.num_features,
            module.eps,
            module.momentum,
            module.affine,
            module.track_running_stats,
            process_group,
            channel_last,
        )
        converted._parameters.update(module._parameters)
        converted._buffers.update(module._buffers)
        converted.train(module.training)
    for name, child in module.named_children():
        converted.add_module(name, convert_syncbn_model(child, process_group, channel_last))
    return converted


def create_syncbn_process_group(group_size: int) -> Any:
    """The group of `group_size` neighbouring ranks that this rank is in; None, all ranks, for 0.

    Every rank has to call it. Raises ValueError if the number of ranks is not a multiple of `group_size`.
    """
    if group_size == 0:
        return None
    size = torch.distributed.get_world_size()
    if size % group_size:
        raise ValueError(f"{size} ranks cannot be divided into groups of {group_size}")
    groups = [torch.distributed.new_group(range(first, first + group_size)) for first in range(0, size, group_size)]
    return groups[torch.distributed.get_rank() // group_size]
