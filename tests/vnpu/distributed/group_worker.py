"""Sections of test_ranks: every collective of torch.distributed on npu tensors, against sums, products and
slices of what the ranks are known to hold."""

from __future__ import annotations

import functools
import operator
import os
import sys
from collections.abc import Callable
from pathlib import Path

from job import Section, run_sections

# torch_npu reduces these; it refuses float64 and unsigned integers itself, on hardware too.
REDUCED = ("float32", "float16", "bfloat16", "int8", "int16", "int32", "int64")
MOVED = (*REDUCED, "float64", "uint8", "bool")
COUNTS = (1, 37, 300_000)


SECTIONS = (
    "all_reduce",
    "all_reduce_of_bool",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_uneven",
    "all_gather_into_tensor",
    "all_gather_objects",
    "reduce_scatter_list",
    "reduce_scatter_uneven",
    "reduce_scatter_tensor",
    "scatter",
    "gather",
    "all_to_all",
    "all_to_all_uneven",
    "all_to_all_single",
    "send_and_receive",
    "batched_point_to_point",
    "coalesced",
    "memory_of_a_group",
    "barrier",
    "subgroups",
    "groups_in_opposite_order",
)


def sections() -> dict[str, Section]:
    import torch
    import torch.distributed as dist

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    ranks = range(size)
    combine: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
        "SUM": operator.add,
        "PRODUCT": operator.mul,
        "MAX": torch.maximum,
        "MIN": torch.minimum,
        "AVG": operator.add,
    }

    def held(of: int, count: int, dtype: str) -> torch.Tensor:
        """What a rank holds: small whole numbers, exact in every type with their sums and products."""
        numbers = (torch.arange(count) * 5 + of * 3) % 4 - (0 if dtype in ("uint8", "bool") else 1)
        return numbers.to(getattr(torch, dtype))

    def reduced(op: str, count: int, dtype: str) -> torch.Tensor:
        total = functools.reduce(combine[op], [held(r, count, dtype).double() for r in ranks])
        return (total / size if op == "AVG" else total).to(getattr(torch, dtype))

    def npu(of: int, count: int, dtype: str) -> torch.Tensor:
        return held(of, count, dtype).npu()

    def same(got: torch.Tensor, expected: torch.Tensor) -> None:
        torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=0)

    def shares(dtype: str = "float32") -> list[torch.Tensor]:
        """Uneven: rank r has r + 1 times 11."""
        return [held(r, (r + 1) * 11, dtype) for r in ranks]

    def all_reduce() -> None:
        for dtype in REDUCED:
            for op in combine:
                if op == "AVG" and dtype.startswith("int"):
                    continue  # torch_npu divides integers in place, which truncates or is refused
                tensor = npu(rank, 37, dtype)
                dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
                same(tensor, reduced(op, 37, dtype))
        for count in COUNTS:
            tensor = npu(rank, count, "float32")
            dist.all_reduce(tensor)
            same(tensor, reduced("SUM", count, "float32"))

    def all_reduce_of_bool() -> None:
        """A sum of booleans is an or."""
        tensor = npu(rank, 37, "bool")
        dist.all_reduce(tensor)
        same(tensor, functools.reduce(torch.logical_or, [held(r, 37, "bool") for r in ranks]))

    def broadcast() -> None:
        for dtype in MOVED:
            tensor = npu(rank, 37, dtype)
            dist.broadcast(tensor, size - 1)
            same(tensor, held(size - 1, 37, dtype))

    def reduce() -> None:
        for dtype in REDUCED:
            tensor = npu(rank, 37, dtype)
            dist.reduce(tensor, 1, dist.ReduceOp.MAX)
            if rank == 1:
                same(tensor, reduced("MAX", 37, dtype))

    def all_gather() -> None:
        for dtype in MOVED:
            parts = [torch.empty(37, dtype=getattr(torch, dtype), device="npu") for _ in ranks]
            dist.all_gather(parts, npu(rank, 37, dtype))
            for r in ranks:
                same(parts[r], held(r, 37, dtype))

    def all_gather_uneven() -> None:
        parts = [torch.empty_like(share, device="npu") for share in shares()]
        dist.all_gather(parts, shares()[rank].npu())
        for got, expected in zip(parts, shares(), strict=True):
            same(got, expected)

    def all_gather_into_tensor() -> None:
        for count in COUNTS:
            whole = torch.empty(size * count, device="npu")
            dist.all_gather_into_tensor(whole, npu(rank, count, "float32"))
            same(whole, torch.cat([held(r, count, "float32") for r in ranks]))

    def all_gather_objects() -> None:
        objects: list[object] = [None] * size
        dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
        assert objects == [{"rank": r, "text": "x" * r} for r in ranks]

    def reduce_scatter_list() -> None:
        for dtype in REDUCED:
            parts = list(npu(rank, 37 * size, dtype).chunk(size))
            out = torch.empty(37, dtype=getattr(torch, dtype), device="npu")
            dist.reduce_scatter(out, parts)
            same(out, reduced("SUM", 37 * size, dtype).chunk(size)[rank])

    def reduce_scatter_uneven() -> None:
        sizes = [(r + 1) * 11 for r in ranks]
        out = torch.empty(sizes[rank], device="npu")
        dist.reduce_scatter(out, list(npu(rank, sum(sizes), "float32").split(sizes)))
        same(out, reduced("SUM", sum(sizes), "float32").split(sizes)[rank])

    def reduce_scatter_tensor() -> None:
        for count in COUNTS:
            out = torch.empty(count, device="npu")
            dist.reduce_scatter_tensor(out, npu(rank, count * size, "float32"))
            same(out, reduced("SUM", count * size, "float32").chunk(size)[rank])

    def scatter() -> None:
        for dtype in MOVED:
            out = torch.empty(37, dtype=getattr(torch, dtype), device="npu")
            dist.scatter(out, [npu(10 + r, 37, dtype) for r in ranks] if rank == 1 else None, src=1)
            same(out, held(10 + rank, 37, dtype))

    def gather() -> None:
        parts = [torch.empty(37, device="npu") for _ in ranks] if rank == 0 else None
        dist.gather(npu(rank, 37, "float32"), parts, dst=0)
        for r, part in enumerate(parts or []):
            same(part, held(r, 37, "float32"))

    def all_to_all() -> None:
        out = [torch.empty(37, device="npu") for _ in ranks]
        dist.all_to_all(out, [npu(10 * rank + r, 37, "float32") for r in ranks])
        for r in ranks:
            same(out[r], held(10 * r + rank, 37, "float32"))

    def all_to_all_uneven() -> None:
        """From r to s go 3 + r + 2 s elements, as a list of tensors and as splits of one."""
        sent = [held(10 * rank + r, 3 + rank + 2 * r, "float32") for r in ranks]
        expected = [held(10 * r + rank, 3 + r + 2 * rank, "float32") for r in ranks]
        out = [torch.empty_like(part, device="npu") for part in expected]
        dist.all_to_all(out, [part.npu() for part in sent])
        for got, part in zip(out, expected, strict=True):
            same(got, part)
        whole = torch.empty(sum(map(len, expected)), device="npu")
        dist.all_to_all_single(whole, torch.cat(sent).npu(), list(map(len, expected)), list(map(len, sent)))
        same(whole, torch.cat(expected))

    def all_to_all_single() -> None:
        for dtype in MOVED:
            out = torch.empty(37 * size, dtype=getattr(torch, dtype), device="npu")
            dist.all_to_all_single(out, npu(rank, 37 * size, dtype))
            same(out, torch.cat([held(r, 37 * size, dtype).chunk(size)[rank] for r in ranks]))

    def send_and_receive() -> None:
        for dtype in ("float32", "bfloat16", "int64"):
            out = torch.empty(300_000, dtype=getattr(torch, dtype), device="npu")
            if rank % 2 == 0:
                dist.send(npu(rank, 300_000, dtype), rank + 1)
                dist.recv(out, rank + 1)
            else:
                dist.recv(out, rank - 1)
                dist.send(npu(rank, 300_000, dtype), rank - 1)
            same(out, held(rank ^ 1, 300_000, dtype))

    def batched_point_to_point() -> None:
        following, before = (rank + 1) % size, (rank - 1) % size
        out = torch.empty(300_000, device="npu")
        calls = [dist.P2POp(dist.isend, npu(rank, 300_000, "float32"), following), dist.P2POp(dist.irecv, out, before)]
        for work in dist.batch_isend_irecv(calls if rank % 2 else calls[::-1]):
            work.wait()
        same(out, held(before, 300_000, "float32"))

    def coalesced() -> None:
        """Between HcclGroupStart and HcclGroupEnd; the largest first, whatever the order of the calls."""
        tensors = [npu(rank, count, "float32") for count in COUNTS]
        with dist._coalescing_manager(device=torch.device("npu", rank)):
            for tensor in tensors:
                dist.all_reduce(tensor)
        for tensor, count in zip(tensors, COUNTS, strict=True):
            same(tensor, reduced("SUM", count, "float32"))

    def memory_of_a_group() -> None:
        """HCCL's buffers, from a group's first collective to its end: on the device, in no statistics of torch."""

        def free() -> int:
            torch.npu.synchronize()
            return int(torch.npu.mem_get_info()[0])

        tensor, before, allocated = npu(rank, 37, "float32"), free(), torch.npu.memory_reserved()
        group = dist.new_group()
        assert free() == before
        dist.all_reduce(tensor, group=group)
        assert before - free() == 401 << 20
        assert torch.npu.memory_reserved() == allocated
        dist.destroy_process_group(group)
        assert free() == before

    def barrier() -> None:
        for _ in range(3):
            dist.barrier()

    def subgroups() -> None:
        """Every rank makes all groups, as torch asks; the members use them in an order of their own."""
        pairs = [(r, s) for r in ranks for s in ranks if r < s]
        groups = {pair: dist.new_group(list(pair)) for pair in pairs}
        mine = [pair for pair in pairs if rank in pair]
        for pair in sorted(mine, key=lambda pair: (sum(pair) % size, pair)):
            tensor = npu(rank, 37, "float32")
            dist.all_reduce(tensor, group=groups[pair])
            same(tensor, sum(held(r, 37, "float32") for r in pair))
        for group in groups.values():
            dist.destroy_process_group(group)

    def groups_in_opposite_order() -> None:
        """Two groups of the same ranks, used in opposite order on odd ranks, without a wait between."""
        groups = [dist.new_group() for _ in range(2)]
        tensors = [npu(rank, 37, "float32") for _ in groups]
        for group, tensor in zip(groups, tensors, strict=True):  # communicators are made in one order
            dist.all_reduce(tensor, group=group)
        torch.npu.synchronize()
        order = (0, 1) if rank % 2 == 0 else (1, 0)
        works = [dist.all_reduce(tensors[i], dist.ReduceOp.MAX, groups[i], async_op=True) for i in order]
        for work in works:
            work.wait()
        for tensor in tensors:
            same(tensor, reduced("SUM", 37, "float32"))

    return {name: value for name, value in locals().items() if name in SECTIONS}


if __name__ == "__main__":
    run_sections(sections(), Path(sys.argv[1]))
