"""Operators that add, and some that do not: prints {name: [[digest of the bits, error against float64], ...]}, a pair for
the result and for each gradient. An error is the norm of the difference, of three draws together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

import torch
import torch_npu
from torch import Tensor
from torch.nn import functional

DRAWS = 3


def places(x: Tensor, count: int, below: int) -> Tensor:
    return torch.arange(count, device=x.device) * 5 % below


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    if q.device.type != "npu":
        return functional.scaled_dot_product_attention(q, k, v, scale=0.25)
    out: Tensor = torch_npu.npu_fusion_attention(q, k, v, 4, "BNSD", scale=0.25)[0]
    return out


# Name -> (what is computed, the shapes of what it is given).
ADDS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "mm": (torch.mm, [(64, 96), (96, 48)]),
    "addmm": (torch.addmm, [(48,), (64, 96), (96, 48)]),
    "bmm": (torch.bmm, [(4, 64, 96), (4, 96, 48)]),
    "linear": (functional.linear, [(64, 96), (48, 96), (48,)]),
    "mv": (torch.mv, [(64, 96), (96,)]),
    "conv2d": (lambda x, w, b: functional.conv2d(x, w, b, padding=1), [(4, 16, 12, 12), (8, 16, 3, 3), (8,)]),
    "conv2d in groups": (lambda x, w: functional.conv2d(x, w, groups=2), [(4, 16, 12, 12), (8, 8, 3, 3)]),
    "conv_transpose2d": (functional.conv_transpose2d, [(4, 16, 12, 12), (16, 8, 3, 3)]),
    "sum": (lambda x: x.sum(1), [(64, 96)]),
    "mean": (lambda x: x.mean(0), [(64, 96)]),
    "vector_norm": (lambda x: torch.linalg.vector_norm(x, dim=1), [(64, 96)]),
    "_foreach_norm": (lambda x: torch.stack(torch._foreach_norm(x.unbind())), [(64, 197)]),
    "logsumexp": (lambda x: x.logsumexp(1), [(64, 96)]),
    "softmax": (lambda x: x.softmax(1), [(64, 96)]),
    "log_softmax": (lambda x: x.log_softmax(1), [(64, 96)]),
    "layer_norm": (lambda x, w, b: functional.layer_norm(x, (96,), w, b), [(64, 96), (96,), (96,)]),
    "batch_norm": (
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        [(8, 6, 9, 9), (6,), (6,)],
    ),
    "group_norm": (lambda x, w, b: functional.group_norm(x, 3, w, b), [(8, 6, 9, 9), (6,), (6,)]),
    "cross_entropy": (lambda x: functional.cross_entropy(x, places(x, 64, 96)).expand(2), [(64, 96)]),
    "mse_loss": (lambda x, y: functional.mse_loss(x, y), [(64, 96), (64, 96)]),
    "embedding": (lambda w: functional.embedding(places(w, 4000, 7), w), [(7, 16)]),
    "index": (lambda w: w[places(w, 4000, 7)], [(7, 16)]),
    "index_select": (lambda w: w.index_select(0, places(w, 4000, 7)), [(7, 16)]),
    "scatter_add": (lambda w, v: w.scatter_add(0, places(w, 400, 7)[:, None].expand(-1, 16), v), [(7, 16), (400, 16)]),
    "npu_fusion_attention": (attention, [(2, 4, 48, 16)] * 3),
}
DOES_NOT_ADD: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "add": (torch.add, [(64, 96), (64, 96)]),
    "gelu": (functional.gelu, [(64, 96)]),
    "gather": (lambda x: x[:, :3].amax(1), [(64, 96)]),
    "transpose": (lambda x: x.t().contiguous(), [(64, 96)]),
}


def measure(function: Callable[..., Tensor], shapes: list[tuple[int, ...]]) -> list[list[str | float]]:
    found: list[list[Tensor]] = []
    wanted: list[list[Tensor]] = []
    for seed in range(DRAWS):
        generator = torch.Generator().manual_seed(seed)
        given = [torch.randn(shape, generator=generator) for shape in shapes]
        for results, arguments in ((found, [x.npu() for x in given]), (wanted, [x.double() for x in given])):
            for argument in arguments:
                argument.requires_grad_()
            result = function(*arguments)
            weights = torch.linspace(-1, 1, result.numel(), device=result.device).view(result.shape).to(result.dtype)
            gradients = torch.autograd.grad(result, arguments, weights)
            results.append([x.detach().cpu() for x in (result, *gradients)])
    return [
        [
            hashlib.sha256(b"".join(one.contiguous().numpy().tobytes() for one in ours)).hexdigest(),
            sum(float((one.double() - right).square().sum()) for one, right in zip(ours, theirs, strict=True)) ** 0.5,
        ]
        for ours, theirs in zip(zip(*found, strict=True), zip(*wanted, strict=True), strict=True)
    ]


print(json.dumps({name: measure(*case) for name, case in (ADDS | DOES_NOT_ADD).items()}))
