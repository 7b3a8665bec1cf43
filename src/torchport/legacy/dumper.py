"""torch.utils.dumper: every operator's inputs and outputs in an HDF5 file; operators run on another run's inputs."""

from __future__ import annotations

import collections
import os
import pathlib
from types import TracebackType
from typing import Any

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from torchport.legacy.tensors import copy_to_host, to_numpy
from torchport.record.hdf5 import Hdf5File

ACL_CONFIGURATION = "acl.json"  # where the guide has the script keep it


class Dumper(TorchDispatchMode):  # type: ignore[misc]
    """`with torch.utils.dumper(use_dump=True, dump_path="run.h5"):` around forward and backward pass.

    use_dump            write every operator's inputs and outputs to `dump_path`
    load_file_path      an earlier dump, of this or another device: each operator that it has is given the inputs from
                        there, so that its outputs differ by its own error alone, not by what came before it
    use_load            load without dumping
    check_overflow      print operators whose outputs hold inf or nan though their inputs do not, and dump those
    load_with_acl_dump  let CANN dump the operators that are loaded, as `acl.json` in the working directory says

    The file has /<operator>/<n>/input/<i> and /<operator>/<n>/output/<i> for an operator's n-th call, counted from 1;
    names are aten's without overload. bfloat16 is kept as float32; attribute `dtype` is the tensor's own. A `dump_path`
    that is a folder gets a file dump_<process>.h5. The file is written aside and renamed at the end of the block.

    Raises ImportError without h5py, ValueError where a dump is asked for without a path, FileNotFoundError for a
    `load_file_path` that is not there.
    """

    def __init__(
        self,
        use_dump: bool = False,
        use_load: bool = False,
        dump_path: str | None = None,
        load_file_path: str | None = None,
        load_with_acl_dump: bool = False,
        check_overflow: bool = False,
    ) -> None:
        super().__init__()
        if (use_dump or check_overflow) and not dump_path:
            raise ValueError("torch.utils.dumper: use_dump and check_overflow need a dump_path.")
        if use_load and not load_file_path:
            raise ValueError("torch.utils.dumper: use_load needs a load_file_path.")
        if load_with_acl_dump and not hasattr(torch, "npu"):
            raise ValueError("torch.utils.dumper: load_with_acl_dump needs an NPU: CANN dumps there.")
        if load_file_path and not os.path.exists(load_file_path):
            raise FileNotFoundError(f"torch.utils.dumper: there is no {load_file_path} to load from.")
        self._dumps = use_dump
        self._checks = check_overflow
        self._path = _file(dump_path) if dump_path and (use_dump or check_overflow) else None
        self._load_path = load_file_path or None
        self._with_acl = load_with_acl_dump
        self._calls: collections.Counter[str] = collections.Counter()
        self._written: Any = None
        self._loaded: Any = None
        self.overflows: list[str] = []

    def __enter__(self) -> Dumper:
        import h5py  # here: only a dump needs it, and it is what is missing then

        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._written = Hdf5File(self._path, ".partial")
        if self._load_path is not None:
            self._loaded = h5py.File(self._load_path, "r")
        return super().__enter__()  # type: ignore[no-any-return]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._loaded is not None:
            self._loaded.close()
        if self._written is not None:
            self._written.finish()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        self._calls[name] += 1
        place = f"{name}/{self._calls[name]}"
        recorded = None if self._loaded is None or _is_view(func) else self._loaded.get(f"{place}/input")
        if recorded is not None:
            args, kwargs = _replace(func, args, kwargs, recorded)
        inputs = copy_to_host((args, kwargs)) if self._written is not None else {}
        with_acl = recorded is not None and self._with_acl
        if with_acl:
            torch.npu.init_dump()
            torch.npu.set_dump(ACL_CONFIGURATION)
        try:
            outputs = func(*args, **kwargs)
        finally:
            if with_acl:
                torch.npu.finalize_dump()
        if self._written is not None:
            results = copy_to_host(outputs)
            overflowed = self._checks and _finite(inputs) and not _finite(results)
            if overflowed:
                self.overflows.append(place)
                print(f"[check_overflow] {place}: the output holds inf or nan, the inputs do not")
            if self._dumps or overflowed:
                self._write(f"{place}/input", inputs)
                self._write(f"{place}/output", results)
        return outputs

    def _write(self, place: str, tensors: dict[int, torch.Tensor]) -> None:
        self._written.add_group(place)
        for index, tensor in tensors.items():
            self._written.write_dataset(f"{place}/{index}", to_numpy(tensor), dtype=str(tensor.dtype))


def _file(path: str) -> pathlib.Path:
    folder = path.endswith(("/", os.sep)) or os.path.isdir(path)
    return pathlib.Path(path, f"dump_{os.getpid()}.h5") if folder else pathlib.Path(path)


def _finite(tensors: dict[int, torch.Tensor]) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in tensors.values() if tensor.is_floating_point())


def _is_view(func: Any) -> bool:
    """Whether the result shares memory with an argument: replacing the argument would part the two."""
    return any(value.alias_info is not None and not value.alias_info.is_write for value in func._schema.returns)


def _replace(func: Any, args: Any, kwargs: Any, recorded: Any) -> tuple[Any, Any]:
    """The arguments with recorded tensors in place of those that agree in shape; what is written to, in place."""
    written = {
        index
        for index, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    }
    names = [argument.name for argument in func._schema.arguments]
    mutable = [args[index] for index in written if index < len(args)]
    mutable += [kwargs[names[index]] for index in written if names[index] in kwargs]
    flat, structure = tree_flatten((args, kwargs))
    for index, value in enumerate(flat):
        dataset = recorded.get(str(index)) if isinstance(value, torch.Tensor) else None
        if dataset is None or dataset.shape != tuple(value.shape) or value.dtype == torch.bool:
            continue
        loaded = torch.from_numpy(numpy.asarray(dataset[()])).to(value.device, value.dtype)
        if any(value is target for target in mutable):
            value.copy_(loaded)
        else:
            flat[index] = loaded
    replaced_args, replaced_kwargs = tree_unflatten(flat, structure)
    return replaced_args, replaced_kwargs
