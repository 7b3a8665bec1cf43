"""Communication backends: "nccl" means hccl where a backend is given, and hccl is "nccl" to the script that asks."""

from __future__ import annotations

import re
from typing import Any

from torchport.auto.devices import cuda_name, npu_name
from torchport.auto.log import Log
from torchport.auto.views import Name, sees_cuda
from torchport.patches import Patches

# Public functions of torch.distributed with the argument `backend`, by its position (None: keyword only).
TAKE_BACKEND = {
    "init_process_group": 0,
    "new_group": 2,
    "new_subgroups": 4,
    "new_subgroups_by_enumeration": 2,
    "is_backend_available": 0,
}
_PAIR = re.compile(r"(\w+):(\w+)", re.ASCII)


def hccl_name(backend: str) -> str:
    """`backend` for the NPU: a name ("nccl", in any case) or a list of pairs ("cpu:gloo,cuda:nccl")."""
    if backend.lower() == "nccl":
        return "hccl"
    pairs = [_PAIR.fullmatch(part) for part in backend.split(",")]
    if not all(pairs):
        return backend
    return ",".join(f"{npu_name(pair[1].lower())}:{hccl_name(pair[2])}" for pair in pairs if pair)


def nccl_name(backend: str) -> str:
    """The reverse of `hccl_name`; a single name equals both."""
    if backend == "hccl":
        return Name("nccl", "hccl")
    return ",".join(part.replace("npu:", "cuda:").replace(":hccl", ":nccl") for part in backend.split(","))


def patch_distributed(torch: Any, patches: Patches, log: Log) -> None:
    """Patch torch.distributed, in its package and in the module that defines it."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    c10d = distributed.distributed_c10d

    def everywhere(name: str, make: Any) -> None:
        original = getattr(c10d, name)
        patches.wrap(c10d, name, make)
        if vars(distributed).get(name) is original:
            patches.set(distributed, name, getattr(c10d, name))

    def remembers_rank(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            log.rank = distributed.get_rank()

        return call

    def takes(name: str, position: int) -> Any:
        def make(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if isinstance(kwargs.get("backend"), str):
                    kwargs["backend"] = named(name, kwargs["backend"])
                elif len(args) > position and isinstance(args[position], str):
                    args = (*args[:position], named(name, args[position]), *args[position + 1 :])
                return original(*args, **kwargs)

            return call

        return make

    def named(name: str, backend: str) -> str:
        there = hccl_name(backend)
        if there != backend:
            log.count_redirected_call(f'torch.distributed.{name}("{backend}")', f'"{there}"')
        return there

    def tells(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            backend = original(*args, **kwargs)
            return nccl_name(backend) if sees_cuda() else backend

        return call

    def of_device(original: Any) -> Any:
        def call(device: Any) -> Any:
            backend = original(npu_name(device) if isinstance(device, str) else device)
            return nccl_name(backend) if sees_cuda() else backend

        return call

    def is_nccl_available(original: Any) -> Any:
        return lambda: distributed.is_hccl_available() if sees_cuda() else original()

    for name, position in TAKE_BACKEND.items():
        if hasattr(c10d, name):
            everywhere(name, takes(name, position))
    everywhere("init_process_group", remembers_rank)
    for name in ("get_backend", "get_backend_config"):
        everywhere(name, tells)
    everywhere("get_default_backend_for_device", of_device)
    everywhere("is_nccl_available", is_nccl_available)
    # Options for a group: HCCL's, under the name that scripts know.
    for module in (distributed, c10d):
        patches.set(module, "ProcessGroupNCCL", c10d_of_npu(torch).ProcessGroupHCCL)
    _patch_mesh(torch, patches, log)


def c10d_of_npu(torch: Any) -> Any:
    """The module of torch_npu that has ProcessGroupHCCL."""
    import torch_npu

    return torch_npu._C._distributed_c10d


def _patch_mesh(torch: Any, patches: Patches, log: Log) -> None:
    """Device meshes are made for a device type; everything that gets one asks it for the type."""
    from torch.distributed import device_mesh

    def mesh(where: str) -> Any:
        def make(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                position = 1 if where == "DeviceMesh" else 0
                if "device_type" in kwargs:
                    kwargs["device_type"] = named(kwargs["device_type"])
                elif len(args) > position:
                    args = (*args[:position], named(args[position]), *args[position + 1 :])
                return original(*args, **kwargs)

            return call

        def named(device: Any) -> Any:
            name = npu_name(device) if isinstance(device, str) else device
            if name is not device:
                log.count_redirected_call(f'torch.distributed.{where}("{device}")', f'"{name}"')
            return name

        return make

    original = device_mesh.init_device_mesh
    patches.wrap(device_mesh, "init_device_mesh", mesh("init_device_mesh"))
    if vars(torch.distributed).get("init_device_mesh") is original:
        patches.set(torch.distributed, "init_device_mesh", device_mesh.init_device_mesh)
    patches.wrap(device_mesh.DeviceMesh, "__init__", mesh("DeviceMesh"))
    real = vars(device_mesh.DeviceMesh).get("device_type")
    if isinstance(real, property) and real.fget is not None:
        get = real.fget

        def device_type(this: Any) -> Any:
            name = get(this)
            return Name(cuda_name(name), name) if name == "npu" and sees_cuda() else name

        patches.set(device_mesh.DeviceMesh, "device_type", property(device_type))
