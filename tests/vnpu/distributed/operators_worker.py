"""Sections of test_ranks: operators that exchange data with other ranks while they run, as torch_npu calls them, against
products and sums in float64 over what the ranks are known to hold."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from job import Section, run_sections

SECTIONS = ("matmul_all_reduce", "all_gather_matmul", "matmul_reduce_scatter", "beside_collectives_in_another_order")


def sections() -> dict[str, Section]:
    import torch
    import torch.distributed as dist
    import torch_npu

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    half = torch.float16

    def name() -> str:
        dist.all_reduce(torch.ones(1).npu())  # torch_npu makes the communicator with the first collective
        backend = dist.group.WORLD._get_backend(torch.device("npu"))
        return str(backend.get_hccl_comm_name(rank))

    def held(seed: int, *shape: int) -> list[torch.Tensor]:
        """What each rank holds."""
        made = [torch.Generator().manual_seed(100 * seed + r) for r in range(size)]
        return [(torch.rand(shape, generator=generator) - 0.5).to(half) for generator in made]

    def near(got: torch.Tensor, expected: torch.Tensor) -> None:
        torch.testing.assert_close(got.cpu().double(), expected, rtol=2e-3, atol=1e-2)

    x1, x2 = held(1, 4 * size, 256), held(2, 256, 5)
    products = [a.double() @ b.double() for a, b in zip(x1, x2, strict=True)]
    total = torch.stack(products).sum(0)

    def mine() -> tuple[torch.Tensor, torch.Tensor]:
        return x1[rank].npu(), x2[rank].npu()

    def matmul_all_reduce() -> None:
        near(torch_npu.npu_mm_all_reduce_base(*mine(), name()), total)
        x3 = held(3, 4 * size, 5)
        got = torch_npu.npu_mm_all_reduce_base(*mine(), name(), x3=x3[rank].npu())
        near(got, total + torch.stack(x3).double().sum(0))

    def all_gather_matmul() -> None:
        got, gathered = torch_npu.npu_all_gather_base_mm(*mine(), name(), size)
        near(got, torch.cat(x1).double() @ x2[rank].double())
        assert torch.equal(gathered.cpu(), torch.cat(x1))

    def matmul_reduce_scatter() -> None:
        near(torch_npu.npu_mm_reduce_scatter_base(*mine(), name(), size), total[4 * rank : 4 * rank + 4])

    def beside_collectives_in_another_order() -> None:
        """On hardware neither waits for the other: they have memory and notifications of their own."""
        group, aside = name(), torch.npu.Stream()
        torch.npu.synchronize()
        for _ in range(5):
            ones = torch.ones(7).npu()
            torch.npu.synchronize()
            if rank % 2 == 0:
                with torch.npu.stream(aside):
                    got = torch_npu.npu_mm_all_reduce_base(*mine(), group)
            work = dist.all_reduce(ones, async_op=True)
            if rank % 2 == 1:
                with torch.npu.stream(aside):
                    got = torch_npu.npu_mm_all_reduce_base(*mine(), group)
            work.wait()
            torch.npu.synchronize()
            assert ones.tolist() == [size] * 7
            near(got, total)

    return {section: value for section, value in locals().items() if section in SECTIONS}


if __name__ == "__main__":
    run_sections(sections(), Path(sys.argv[1]))
