"""Data parallel training under apex's names."""

# No `from __future__ import annotations`: torch compares the annotations of communication hooks with classes.

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


class DistributedDataParallel(nn.parallel.DistributedDataParallel):  # type: ignore[misc]
    """torch's DistributedDataParallel with apex's arguments.

    message_size              elements in a bucket
    delay_allreduce           parameters may be unused in a pass
    allreduce_always_fp32     sum fp16 gradients in fp32
    gradient_average          divide by the number of ranks
    gradient_predivide_factor divide by so much before the sum, and by the rest of it afterwards

    The others tune CUDA streams and buffers; they change no result.
    """

    def __init__(
        self,
        module: nn.Module,
        message_size: int = 10_000_000,
        delay_allreduce: bool = False,
        shared_param: Any = None,
        allreduce_trigger_params: Any = None,
        retain_allreduce_buffers: bool = False,
        allreduce_always_fp32: bool = False,
        num_allreduce_streams: int = 1,
        allreduce_communicators: Any = None,
        gradient_average: bool = True,
        gradient_predivide_factor: float = 1.0,
        gradient_average_split_factor: Any = None,
        prof: bool = False,
    ) -> None:
        super().__init__(module, bucket_cap_mb=message_size * 4 / 2**20, find_unused_parameters=delay_allreduce)
        if allreduce_always_fp32 or not gradient_average or gradient_predivide_factor != 1.0:
            size = torch.distributed.get_world_size()
            after = gradient_predivide_factor / size if gradient_average else gradient_predivide_factor
            self.register_comm_hook(None, _sum_hook(allreduce_always_fp32, gradient_predivide_factor, after))


def _sum_hook(in_float: bool, before: float, after: float) -> Any:
    """A communication hook: divide by `before`, sum over the ranks, multiply by `after`."""

    def hook(state: Any, bucket: torch.distributed.GradBucket) -> torch.futures.Future[Tensor]:
        buffer = bucket.buffer()
        message = (buffer.float() if in_float else buffer).div(before)
        work = torch.distributed.all_reduce(message, async_op=True)
        return work.get_future().then(lambda done: buffer.copy_(done.value()[0].mul_(after)))

    return hook


class Reducer:
    """Sums gradients over the ranks when `reduce()` is called, and broadcasts a module's parameters at first."""

    def __init__(self, module_or_grads_list: nn.Module | Iterable[Tensor]) -> None:
        if isinstance(module_or_grads_list, nn.Module):
            self.module: nn.Module | None = module_or_grads_list
            for parameter in module_or_grads_list.parameters():
                torch.distributed.broadcast(parameter.data, 0)
        else:
            self.module = None
            self.grads = list(module_or_grads_list)

    def reduce(self) -> None:
        """Average the module's gradients, or the tensors of the list."""
        gradients = self.grads if self.module is None else [p.grad for p in self.module.parameters()]
        for gradient in gradients:
            if gradient is not None:
                torch.distributed.all_reduce(gradient)
                gradient.div_(torch.distributed.get_world_size())
