"""Use of device memory that is not a tensor's, through torch: one JSON line for each case, with what the error says."""

from __future__ import annotations

import json
from collections.abc import Callable

import torch

NPU = torch.device("npu:0")


def over(address: int, *sizes: int, strides: tuple[int, ...] | None = None, offset: int = 0) -> torch.Tensor:
    """A float32 tensor over any address, as a C++ extension would make one."""
    steps = strides or tuple(torch.empty(sizes, device="meta").stride())
    reach = offset + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True)) + 1
    storage = torch._C._construct_storage_from_data_pointer(address, NPU, 4 * reach)
    return torch.empty(0, device=NPU).set_(storage, offset, sizes, steps)


def freed(length: int) -> int:
    """The address of a tensor that is gone."""
    tensor = torch.full((length,), 5.0, device=NPU)
    torch.npu.synchronize()
    return tensor.data_ptr()


def resized() -> torch.Tensor:
    """A tensor whose storage was taken away from under it."""
    tensor = torch.ones(100, device=NPU)
    address = tensor.data_ptr()
    tensor.untyped_storage().resize_(0)
    return over(address, 100)


block = torch.ones(100, device=NPU)  # of 400 bytes
matrix = torch.ones(10, 10, device=NPU)
here = block.data_ptr()
gone = freed(1000)
index = torch.zeros(4, dtype=torch.long, device=NPU)
small = torch.ones(4, device=NPU)

MISUSES: dict[str, Callable[[], object]] = {
    "past: in place": lambda: over(here, 101).add_(1),
    "past: input": lambda: small + over(here + 388, 4),
    "past: output": lambda: torch.mul(small, small, out=over(here + 392, 4)),
    "past: fill": lambda: over(here, 104).fill_(3),
    "past: strides": lambda: over(here, 10, 10, strides=(12, 1)).exp_(),
    "past: transposed": lambda: over(here, 11, 10, strides=(1, 11)).sum(),
    "past: offset": lambda: over(here, 1, offset=100).zero_(),
    "past: matrix product": lambda: matrix @ over(here, 10, 11),
    "past: list": lambda: torch._foreach_add_([block, over(here, 101)], 1.0),
    "past: index": lambda: over(here, 200).index_select(0, index),
    "past: to the host": lambda: over(here, 101).cpu(),
    "past: from the host": lambda: over(here, 101).copy_(torch.ones(101)),
    "past: softmax": lambda: torch.softmax(over(here, 5, 21), 1),
    "freed: in place": lambda: over(gone, 8).add_(1),
    "freed: its middle": lambda: over(gone + 2048, 8).add_(1),
    "freed: input": lambda: small + over(gone, 4),
    "freed: matrix product": lambda: over(gone, 10, 10) @ matrix,
    "freed: list": lambda: torch._foreach_mul_([over(gone, 8)], 2.0),
    "freed: joined": lambda: torch.cat([small, over(gone, 4)]),
    "freed: to the host": lambda: over(gone, 8).cpu(),
    "freed: copy": lambda: small.copy_(over(gone, 4)),
    "freed: resized storage": lambda: resized().add_(1),
    "freed: norm": lambda: torch.nn.functional.layer_norm(over(gone, 4, 4), [4]),
}


def aside() -> torch.Tensor:
    """Freed while a side stream still works on it: the allocator waits for that."""
    with torch.npu.stream(torch.npu.Stream()):
        busy = torch.ones(1000, 1000, device=NPU)
        done = (busy @ busy).sum()
        del busy
    torch.npu.synchronize()
    return done


USES: dict[str, Callable[[], object]] = {
    "whole": lambda: over(here, 100).sum(),
    "last element": lambda: over(here + 396, 1).sum(),
    "offset": lambda: over(here, 10, offset=90).sum(),
    "transposed": lambda: over(here, 10, 10, strides=(1, 10)).sum(),
    "expanded": lambda: (small[:1].expand(1000) + 1).sum(),
    "expanded over itself": lambda: over(here, 50, 100, strides=(0, 1)).sum(),
    "slice": lambda: matrix[2:8, 1:9:2].exp().sum(),
    "zero rows": lambda: matrix[:0].sum(),
    "zero-size": lambda: torch.empty(0, 5, device=NPU) @ torch.empty(5, 0, device=NPU),
    "scalar": lambda: torch.tensor(3.0, device=NPU) * 2,
    "channels last": lambda: torch.ones(2, 5, 7, 3, device=NPU).permute(0, 3, 1, 2).exp().sum(),
    "narrow": lambda: block.narrow(0, 37, 63).clone(),
    "flip": lambda: matrix.flip(0).cpu(),
    "list": lambda: torch._foreach_add([block, matrix, small], 1.0),
    "half": lambda: torch.ones(33, dtype=torch.float16, device=NPU).float().sum(),
    "bytes": lambda: torch.ones(33, dtype=torch.uint8, device=NPU).sum(),
    "bool": lambda: (block > 0).all(),
    "as_strided": lambda: block.as_strided((9, 9), (11, 1)).sum(),
    "resized": lambda: torch.ones(4, device=NPU).resize_(64).zero_(),
    "side stream": aside,
    "freed and made again": lambda: [torch.full((1000,), float(i), device=NPU).sum() for i in range(50)],
    "index": lambda: block[index],
    "attention": lambda: torch.nn.functional.scaled_dot_product_attention(
        *(torch.ones(1, 1, 4, 4, device=NPU) for _ in range(3))
    ),
}


def said(call: Callable[[], object]) -> str:
    try:
        call()
        torch.npu.synchronize()
    except RuntimeError as error:
        return str(error)
    return ""


for kind, cases in (("misuse", MISUSES), ("use", USES)):
    for name, call in cases.items():
        print(json.dumps({"kind": kind, "name": name, "said": said(call)}), flush=True)
    untouched = [bool((each == 1).all().item()) for each in (block, matrix, small)]
    print(json.dumps({"kind": "after", "name": kind, "said": str(untouched)}), flush=True)
print(json.dumps({"kind": "places", "name": f"{here:#x}", "said": f"{gone:#x}"}))
