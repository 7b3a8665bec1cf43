"""Several processes: NCCL becomes gloo, which refuses what NCCL refuses, and a mesh of CUDA devices a mesh of CPUs."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

from torchport.on_import import after_import
from torchport.patches import Patches
from torchport.record.reference import queries
from torchport.record.reference.cards import COLLECTIVES, Communicator
from torchport.record.reference.places import name_device, to_cpu

# Public functions of torch.distributed with the argument `backend`, by its position (None: keyword only).
TAKE_BACKEND = {"init_process_group": 0, "new_group": 2, "new_subgroups": 4, "new_subgroups_by_enumeration": 2}
# Functions that take an operation; gloo has no PREMUL_SUM, by which FSDP2 divides gradients.
SUMS = (
    "all_reduce",
    "all_reduce_coalesced",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "_reduce_scatter_base",
)
_PAIR = re.compile(r"\w+:\w+", re.ASCII)
NCCL = "nccl"
# FSDP in a wrapper of modules; that of functions, `fully_shard`, works by a mesh.
FSDP = "torch.distributed.fsdp.fully_sharded_data_parallel"
# Seeds of sharded tensors, which are torch's own on a mesh of cards and none on one of CPUs (torch 2.13).
SHARDED_DRAWS = "torch.distributed.tensor._random"


def to_gloo_backend(backend: Any) -> Any:
    """`backend` for the CPU: gloo for NCCL in any case, for a list of pairs ("cpu:gloo,cuda:nccl"), and for None."""
    if not isinstance(backend, str):
        return "gloo" if backend is None else backend
    pairs = all(map(_PAIR.fullmatch, backend.split(",")))
    return "gloo" if pairs or backend.lower() in (NCCL, "undefined") else backend


def patch_parallel(torch: Any, patches: Patches) -> None:
    """Patch DataParallel, and torch.distributed where this torch has it."""
    parallel = torch.nn.parallel
    patches.wrap(parallel.DataParallel, "forward", lambda _: lambda this, *args, **kwargs: this.module(*args, **kwargs))
    for owner in (parallel, sys.modules[parallel.data_parallel.__module__]):
        patches.wrap(owner, "data_parallel", lambda _: _alone)
    if torch.distributed.is_available():
        communicators = _patch_groups(torch, patches)
        _patch_mesh(torch, patches)
        patches.wrap(parallel.DistributedDataParallel, "__init__", _replicas(torch, communicators))
        patches.on_undo(after_import(FSDP, lambda module: _patch_fsdp(patches, module, torch.device("cpu"))))
        patches.on_undo(after_import(SHARDED_DRAWS, lambda module: patches.wrap(module, "manual_seed", _seed_mesh)))


def _alone(
    module: Any, inputs: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0, module_kwargs: Any = None
) -> Any:
    """What `data_parallel` gives on one device."""
    return module(*(inputs if isinstance(inputs, tuple) else (inputs,)), **(module_kwargs or {}))


def _seed_mesh(original: Any) -> Any:
    def seed(value: Any, device_mesh: Any) -> None:
        original(value, device_mesh)
        if device_mesh.device_type == "cpu":
            sys.modules["torch"].manual_seed(value)

    return seed


def _replicas(torch: Any, communicators: dict[str, Communicator]) -> Any:
    def make(original: Any) -> Any:
        def init(
            this: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kwargs: Any
        ) -> None:
            if any(name_device(one) == "cuda" for one in module.parameters()):
                group = kwargs.get("process_group", args[2] if len(args) > 2 else None)
                _meet(torch, communicators, group, mixed=True)
            original(this, module, None, None, *args, **kwargs)

        return init

    return make


def _patch_fsdp(patches: Patches, module: Any, cpu: Any) -> None:
    """Let FullyShardedDataParallel work on the CPU, which it refuses where nobody has named it, and send its modules
    from rank 0, for which it wants them on a card."""

    def make(original: Any) -> Any:
        signature = inspect.signature(original)

        def init(*args: Any, **kwargs: Any) -> None:
            bound = signature.bind(*args, **kwargs)
            bound.arguments["device_id"] = cpu
            original(*bound.args, **bound.kwargs)

        return init

    patches.wrap(module.FullyShardedDataParallel, "__init__", make)
    inside = sys.modules[module._init_param_handle_from_module.__module__]
    patches.set(inside, "_check_module_states_for_sync_module_states", lambda states: None)


def _meet(torch: Any, communicators: dict[str, Communicator], group: Any, mixed: bool = False) -> None:
    """Let the ranks of the group compare their cards; where gloo may carry what is sent, only if `mixed`."""
    c10d = torch.distributed.distributed_c10d
    if not communicators or group is c10d.GroupMember.NON_GROUP_MEMBER:
        return
    world = group is None or group is c10d.GroupMember.WORLD
    name = c10d._get_process_group_name(c10d._get_default_group() if world else group)
    communicator = communicators.get(name)
    if communicator is not None and (mixed or not communicator.mixed):
        communicator.meet()


def _patch_groups(torch: Any, patches: Patches) -> dict[str, Communicator]:
    """Patch what makes groups, tells of them and uses them; the communicators of NCCL, by the name of their group."""
    distributed = torch.distributed
    c10d = distributed.distributed_c10d
    # What the script has asked for, by the group that it got: what it asks later has to be the same.
    asked: dict[int | None, str] = {}
    communicators: dict[str, Communicator] = {}

    def everywhere(name: str, make: Any) -> None:
        original = getattr(c10d, name)
        patches.wrap(c10d, name, make)
        if vars(distributed).get(name) is original:
            patches.set(distributed, name, getattr(c10d, name))

    def takes(name: str, position: int) -> Any:
        def make(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                bound = queries.index_of(kwargs.pop("device_id", None))
                kwargs.pop("pg_options", None)  # those of NCCL; gloo takes none
                backend = kwargs.get("backend", args[position] if len(args) > position else None)
                if len(args) > position:
                    args = (*args[:position], to_gloo_backend(backend), *args[position + 1 :])
                elif backend is not None or name == "init_process_group":
                    kwargs["backend"] = to_gloo_backend(backend)
                made = original(*args, **kwargs)
                world = name == "init_process_group"
                given = backend.lower() if isinstance(backend, str) else NCCL if world else asked.get(None, "gloo")
                asked[None if world else id(made)] = NCCL if NCCL in given else given
                if NCCL in given and (world or isinstance(made, distributed.ProcessGroup)):
                    note(c10d._get_default_group() if world else made, backend, bound)
                return made

            return call

        return make

    def note(group: Any, backend: Any, bound: int | None) -> None:
        of_world = communicators.get(c10d._get_process_group_name(c10d._get_default_group()))
        if of_world is not None and of_world.bound is not None:
            return  # all ranks have met, each with the card that it is bound to
        if isinstance(backend, str):
            mixed = backend.lower() != NCCL
        else:
            mixed = of_world.mixed if of_world is not None else bound is None
        name = c10d._get_process_group_name(group)
        communicators[name] = Communicator(torch, group, mixed, bound)
        if bound is not None:
            communicators[name].meet()

    def meets(original: Any) -> Any:
        at = list(inspect.signature(original).parameters).index("group")

        def call(*args: Any, **kwargs: Any) -> Any:
            _meet(torch, communicators, kwargs.get("group", args[at] if len(args) > at else None))
            # NCCL sends numbers; gloo writes into views, which autograd refuses where what is sent has a history.
            words = {name: _detach(torch, value) for name, value in kwargs.items()}
            return original(*(_detach(torch, value) for value in args), **words)

        return call

    def scales(original: Any) -> Any:
        signature = inspect.signature(original)

        def call(*args: Any, **kwargs: Any) -> Any:
            if not any(_is_premultiplied(c10d, one) for one in (*args, *kwargs.values())):
                return original(*args, **kwargs)
            words = signature.bind(*args, **kwargs).arguments
            factor, words["op"] = words["op"].factor, c10d.ReduceOp.SUM
            name = next(name for name in ("tensor", "tensors", "input", "input_list") if name in words)
            if name in ("tensor", "tensors"):  # which have the result
                for one in [words[name]] if name == "tensor" else words[name]:
                    one.mul_(factor)
            else:
                words[name] = [one * factor for one in words[name]] if name == "input_list" else words[name] * factor
            return original(**words)

        return call

    def tells(original: Any) -> Any:
        def call(group: Any = None) -> Any:
            backend = original(group)
            world = group is None or group is c10d.GroupMember.WORLD
            return asked.get(None if world else id(group), backend) if backend == "gloo" else backend

        return call

    def destroyed(original: Any) -> Any:
        def call(group: Any = None) -> None:
            original(group)
            if group is None or not distributed.is_initialized():
                asked.clear()
                communicators.clear()

        return call

    for name, position in TAKE_BACKEND.items():
        if hasattr(c10d, name):
            everywhere(name, takes(name, position))
    everywhere("get_backend", tells)
    everywhere("destroy_process_group", destroyed)
    everywhere("is_nccl_available", lambda _: lambda: True)
    # torch asks where NCCL is available whether a backend is its: none is, and a CPU build lacks the name.
    if not hasattr(c10d, "ProcessGroupNCCL"):
        patches.set(c10d, "ProcessGroupNCCL", type("ProcessGroupNCCL", (), {}))
    for name in COLLECTIVES:
        if hasattr(c10d, name):
            everywhere(name, meets)
    for name in SUMS:
        if hasattr(c10d, name):
            everywhere(name, scales)
    return communicators


def _detach(torch: Any, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach() if value.requires_grad else value
    if isinstance(value, list) and any(isinstance(one, torch.Tensor) and one.requires_grad for one in value):
        return [_detach(torch, one) for one in value]
    return value


def _is_premultiplied(c10d: Any, value: Any) -> bool:
    return isinstance(value, c10d.ReduceOp) and getattr(value, "op", None) == c10d.ReduceOp.PREMUL_SUM


def _patch_mesh(torch: Any, patches: Patches) -> None:
    from torch.distributed import device_mesh

    def mesh(position: int) -> Any:
        def make(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if "device_type" in kwargs:
                    kwargs["device_type"] = to_cpu(torch, kwargs["device_type"])
                elif len(args) > position:
                    args = (*args[:position], to_cpu(torch, args[position]), *args[position + 1 :])
                return original(*args, **kwargs)

            return call

        return make

    original = device_mesh.init_device_mesh
    patches.wrap(device_mesh, "init_device_mesh", mesh(0))
    if vars(torch.distributed).get("init_device_mesh") is original:
        patches.set(torch.distributed, "init_device_mesh", device_mesh.init_device_mesh)
    patches.wrap(device_mesh.DeviceMesh, "__init__", mesh(1))
