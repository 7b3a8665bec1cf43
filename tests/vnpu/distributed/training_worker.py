"""Sections of test_ranks: ways of training on several ranks, each against one process that has the whole batch, on
the virtual NPU as well; and what must be identical on all ranks, bit for bit."""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from job import Section, run_sections

SECTIONS = (
    "ddp",
    "gradient_accumulation",
    "sync_batch_norm",
    "zero_redundancy_optimizer",
    "fsdp",
    "fully_sharded",
    "checkpoint",
    "ddp_under_autocast",
)
STEPS, SHARE = 5, 8  # optimizer steps, samples of a rank


def sections() -> dict[str, Section]:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch import nn
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    def model(norm: bool = False) -> nn.Module:
        torch.manual_seed(1)
        layers = [nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6) if norm else nn.Identity(), nn.Tanh(), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(6 * 64, 16), nn.Tanh(), nn.Linear(16, 10)).npu()

    def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The whole batch of a step: `size` shares."""
        generator = torch.Generator().manual_seed(step)
        images = torch.randn(SHARE * size, 1, 8, 8, generator=generator)
        return images.npu(), torch.randint(0, 10, (SHARE * size,), generator=generator).npu()

    def share(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = batch(step)
        return images[rank * SHARE :][:SHARE], labels[rank * SHARE :][:SHARE]

    def sgd(parameters: object) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, 0.05, momentum=0.9, weight_decay=1e-3)  # type: ignore[arg-type]

    def adam(parameters: object) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, 1e-3)  # type: ignore[arg-type]

    def train(
        net: nn.Module,
        optimizer: torch.optim.Optimizer,
        data: Callable[[int], tuple[torch.Tensor, torch.Tensor]],
        steps: range = range(STEPS),
    ) -> nn.Module:
        for step in steps:
            images, labels = data(step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
        return net

    def alone(make: Callable[[object], torch.optim.Optimizer] = sgd, norm: bool = False) -> dict[str, torch.Tensor]:
        net = model(norm)
        return {k: v.cpu() for k, v in train(net, make(net.parameters()), batch).state_dict().items()}

    def close(state: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], limit: float = 1e-5) -> None:
        assert {key.removeprefix("module.") for key in state} == set(expected)
        for key, value in state.items():
            difference = (value.cpu().double() - expected[key.removeprefix("module.")].double()).abs().max()
            assert difference <= limit, f"{key}: {difference:g}"

    def identical(state: dict[str, torch.Tensor]) -> None:
        """Every rank has the same bits."""
        for key, value in state.items():
            bits = value.detach().cpu().flatten().view(torch.uint8).npu()
            ranks = [torch.empty_like(bits) for _ in range(size)]
            dist.all_gather(ranks, bits)
            assert all(torch.equal(ranks[0], each) for each in ranks), key

    def parallel(net: nn.Module) -> DistributedDataParallel:
        return DistributedDataParallel(net, device_ids=[rank])

    def ddp() -> None:
        net = parallel(model())
        before = copy.deepcopy(net.state_dict())
        train(net, sgd(net.parameters()), share)
        identical(net.state_dict())
        close(net.state_dict(), alone())
        moved = [not torch.equal(before[key], value) for key, value in net.state_dict().items()]
        assert all(moved)

    def gradient_accumulation() -> None:
        """Two halves of a share, the first under no_sync, are one step."""
        net = parallel(model())
        optimizer = sgd(net.parameters())
        for step in range(STEPS):
            images, labels = share(step)
            optimizer.zero_grad()
            for half, context in (
                (slice(0, SHARE // 2), net.no_sync),
                (slice(SHARE // 2, SHARE), contextlib.nullcontext),
            ):
                with context():
                    (nn.functional.cross_entropy(net(images[half]), labels[half]) / 2).backward()
            optimizer.step()
        identical(net.state_dict())
        close(net.state_dict(), alone())

    def sync_batch_norm() -> None:
        net = parallel(nn.SyncBatchNorm.convert_sync_batchnorm(model(norm=True)))
        train(net, sgd(net.parameters()), share)
        identical(net.state_dict())
        close(net.state_dict(), alone(norm=True))

    def zero_redundancy_optimizer() -> None:
        net = parallel(model())
        optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=1e-3)
        train(net, optimizer, share)
        identical(net.state_dict())
        close(net.state_dict(), alone(adam))
        held = sum(len(group["params"]) for group in optimizer.optim.param_groups)
        assert held < len(list(net.parameters()))  # a part of the optimizer's state on each rank

    def fsdp() -> None:
        net = FullyShardedDataParallel(model(), device_id=torch.device("npu", rank), use_orig_params=True)
        train(net, sgd(net.parameters()), share)
        with FullyShardedDataParallel.summon_full_params(net):
            full = {name: value.detach().cpu() for name, value in net.module.named_parameters()}
        identical(full)
        close(full, alone())

    def sharded() -> nn.Module:
        net = model()
        for layer in net:
            if list(layer.parameters()):
                fully_shard(layer)
        return fully_shard(net)

    def whole(net: nn.Module) -> dict[str, torch.Tensor]:
        return {name: value.full_tensor().detach().cpu() for name, value in net.named_parameters()}  # type: ignore[attr-defined]

    def fully_sharded() -> None:
        net = sharded()
        train(net, sgd(net.parameters()), share)
        identical(whole(net))
        close(whole(net), alone())

    def checkpoint() -> None:
        """Two steps, saved by all ranks, loaded into new objects, and three more: as five steps in one go."""
        net = sharded()
        optimizer = sgd(net.parameters())
        train(net, optimizer, share, range(2))
        folder = [tempfile.mkdtemp() if rank == 0 else ""]
        dist.broadcast_object_list(folder)
        weights, state = get_state_dict(net, optimizer)
        dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder[0])

        other = sharded()
        other_optimizer = sgd(other.parameters())
        weights, state = get_state_dict(other, other_optimizer)
        dcp.load({"model": weights, "optimizer": state}, checkpoint_id=folder[0])
        set_state_dict(other, other_optimizer, model_state_dict=weights, optim_state_dict=state)
        train(other, other_optimizer, share, range(2, STEPS))
        close(whole(other), alone())

    def ddp_under_autocast() -> None:
        """float16 with a GradScaler: only that ranks agree; the numbers are those of float16."""
        net = parallel(model())
        optimizer, scaler = sgd(net.parameters()), torch.amp.GradScaler("npu", init_scale=256.0)
        for step in range(STEPS):
            images, labels = share(step)
            with torch.autocast("npu", torch.float16):
                loss = nn.functional.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        identical(net.state_dict())
        close(net.state_dict(), alone(), 2e-2)

    return {name: value for name, value in locals().items() if name in SECTIONS}


if __name__ == "__main__":
    run_sections(sections(), Path(sys.argv[1]))
