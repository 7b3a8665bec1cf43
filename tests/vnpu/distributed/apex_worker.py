"""Sections of test_ranks: apex's ways of training on several ranks, against one process with the whole batch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from job import Section, run_sections

SECTIONS = ("distributed_data_parallel", "gradient_options", "combine_ddp", "overflow", "sync_batch_norm", "reducer")
STEPS, SHARE = 3, 4  # optimizer steps, samples of a rank


def sections() -> dict[str, Section]:
    import torch
    import torch.distributed as dist
    from torch import nn

    from torchport import standins

    standins.install()
    from apex import amp, parallel

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    def model(norm: bool = False) -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5) if norm else nn.Tanh(), nn.Linear(5, 2)).npu()

    def batch(step: int) -> torch.Tensor:
        return torch.randn(SHARE * size, 6, generator=torch.Generator().manual_seed(step)).npu()

    def train(
        net: nn.Module, wrap: Callable[[nn.Module], nn.Module], whole: bool, poison: int = -1, **options: Any
    ) -> list[torch.Tensor]:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        options = {"opt_level": "O0", "verbosity": 0} | options
        net, optimizer = amp.initialize(net, optimizer, **options)
        net = wrap(net)
        for step in range(STEPS):
            x = batch(step) if whole else batch(step)[rank * SHARE :][:SHARE]
            loss = net(x).square().mean()
            if step == poison:
                loss = loss * float("inf")
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()
            optimizer.zero_grad()
        return [parameter.detach().clone() for parameter in amp.master_params(optimizer)]

    def same(got: list[torch.Tensor], want: list[torch.Tensor], tolerance: float = 1e-5) -> None:
        for a, b in zip(got, want, strict=True):
            assert torch.allclose(a, b, rtol=tolerance, atol=tolerance), (a, b)
            copies = [torch.empty_like(a) for _ in range(size)]
            dist.all_gather(copies, a.contiguous())
            assert all(torch.equal(each, a) for each in copies), "ranks differ"

    def distributed_data_parallel() -> None:
        same(train(model(), parallel.DistributedDataParallel, False), train(model(), lambda net: net, True))
        half = {"opt_level": "O2", "loss_scale": 128.0}
        same(
            train(model(), parallel.DistributedDataParallel, False, **half),
            train(model(), lambda net: net, True, **half),
            5e-3,
        )

    def gradient_options() -> None:
        def gradient(**options: Any) -> torch.Tensor:
            net = parallel.DistributedDataParallel(model(), **options)
            net(batch(0)[rank * SHARE :][:SHARE]).square().mean().backward()
            return net.module[0].weight.grad.clone()

        mean = gradient()
        assert torch.allclose(gradient(gradient_average=False), mean * size, atol=1e-6)
        assert torch.allclose(gradient(gradient_predivide_factor=4.0), mean, atol=1e-6)
        assert torch.allclose(gradient(allreduce_always_fp32=True, delay_allreduce=True), mean, atol=1e-6)

    def combine_ddp() -> None:
        options = {"combine_grad": True, "combine_ddp": True}
        net = model()
        with torch.no_grad():
            net[0].weight.mul_(1 - rank)  # rank 0's parameters become everybody's
        same(train(net, lambda net: net, False, **options), train(model(), lambda net: net, True))
        half = {"opt_level": "O2", "loss_scale": 128.0}
        same(
            train(model(), lambda net: net, False, **half, **options),
            train(model(), lambda net: net, True, **half),
            5e-3,
        )

    def overflow() -> None:
        dynamic = {"opt_level": "O2", "loss_scale": "dynamic", "combine_grad": True, "combine_ddp": True}
        got = train(model(), lambda net: net, False, poison=1 if rank == 0 else -1, **dynamic)
        assert amp.state_dict()["loss_scaler0"]["loss_scale"] == 2.0**15, "every rank has to skip"
        same(got, got)

    def sync_batch_norm() -> None:
        def converted() -> nn.Module:
            return parallel.DistributedDataParallel(parallel.convert_syncbn_model(model(norm=True)))

        net = converted()
        whole = model(norm=True)
        out = net(batch(0)[rank * SHARE :][:SHARE])
        want = whole(batch(0))[rank * SHARE :][:SHARE]
        assert torch.allclose(out, want, atol=1e-5)
        assert torch.allclose(net.module[1].running_var, whole[1].running_var, atol=1e-5)
        group = parallel.create_syncbn_process_group(1)
        alone = parallel.SyncBatchNorm(5, process_group=group).npu()
        x = torch.randn(4, 5, generator=torch.Generator().manual_seed(rank)).npu()
        assert torch.allclose(alone(x), nn.BatchNorm1d(5).npu()(x), atol=1e-5)
        assert parallel.create_syncbn_process_group(0) is None

    def reducer() -> None:
        net = model()
        reduce = parallel.Reducer(net)
        net(batch(0)[rank * SHARE :][:SHARE]).square().mean().backward()
        reduce.reduce()
        whole = model()
        whole(batch(0)).square().mean().backward()
        assert torch.allclose(net[0].weight.grad, whole[0].weight.grad, atol=1e-5)

    found = {name: value for name, value in locals().items() if name in SECTIONS}
    return {name: found[name] for name in SECTIONS}


if __name__ == "__main__":
    run_sections(sections(), Path(sys.argv[1]))
