"""The user's model, made by the factory, with the weights of a checkpoint in it."""

from __future__ import annotations

import importlib
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from torchport.checkpoints.contents import Stored, read_tensor_bytes
from torchport.checkpoints.names import Match, find_nearest_name, match_names
from torchport.checkpoints.tensors import Unreadable
from torchport.errors import TorchportError
from torchport.export.job import Job

SHOWN = 5
TORCH, OURS = str(Path(torch.__file__).parent), str(Path(__file__).parents[1])
PYTHON = sysconfig.get_path("stdlib")
# Kinds of packed weights by the ends of their names, and what to export instead.
QUANTISED: dict[str, tuple[tuple[str, ...], str]] = {
    "torch.ao.quantization": (
        (
            "_packed_params",
            "_packed_params._packed_params",
            "_packed_params.dtype",
            ".zero_point",
            "fake_quant_enabled",
        ),
        "Export the float checkpoint, as it was before convert().",
    ),
    "GPTQ or AWQ": ((".qweight", ".qzeros"), "Export the model that was quantised."),
    "bitsandbytes": (
        (".absmax", ".quant_map", ".SCB", "quant_state.bitsandbytes__nf4", "quant_state.bitsandbytes__fp4"),
        "Load it with transformers, call dequantize(), and save the state_dict.",
    ),
    "compressed-tensors or FP8": (
        (".weight_packed", ".weight_scale", ".weight_scale_inv", ".input_scale"),
        "Export the model that was quantised.",
    ),
}
UNUSED = ".num_batches_tracked"  # a counter that eval() does not read and that older checkpoints lack


def make_model(job: Job) -> Any:
    """What the factory gives, in eval(). Raises TorchportError for whatever keeps it from giving a module."""
    module, _, name = job.model.partition(":")
    try:
        factory: Any = importlib.import_module(module)
        for part in name.split("."):
            factory = getattr(factory, part)
        model = factory(**job.arguments)
    except (Exception, SystemExit) as error:
        raise TorchportError(
            f"--model {job.model} cannot be made: {locate_error(error)}{type(error).__name__}: {error}",
            hint="It is imported with the current folder in sys.path, without an NPU and without CUDA; arguments go "
            "into --arguments '{\"num_classes\": 10}'.",
        ) from error
    if not isinstance(model, torch.nn.Module):
        raise TorchportError(
            f"--model {job.model} gives {type(model).__name__}, not a torch.nn.Module",
            hint="Name a function or a class that gives the model when it is called.",
        )
    return model.cpu().float().eval().requires_grad_(False)


def first_line(error: BaseException) -> str:
    """The first line of an error's text, 400 characters of it."""
    return str(error).strip().partition("\n")[0][:400]


def locate_error(error: BaseException) -> str:
    """The line in the user's code that raised; a library's if none of the user's is in the traceback."""
    trace, found, library = error.__traceback__, "", ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(("<", TORCH, OURS)):
            if "site-packages" in file or "dist-packages" in file:
                library = f"{file}:{trace.tb_lineno}: "
            elif not file.startswith(PYTHON):
                found = f"{file}:{trace.tb_lineno}: "
        trace = trace.tb_next
    return found or library


def load_weights(model: Any, weights: Mapping[str, Stored], job: Job) -> dict[str, Any]:
    """Put the weights into the model; what was stripped, and what was allowed to be missing or to be left over.

    Raises TorchportError for names and shapes that do not fit, with the nearest names.
    """
    wanted = model.state_dict(keep_vars=True)
    found = match_names(wanted, weights)
    given = {name: weights[was] for name, was in found.names.items()}
    missing = [name for name in found.missing if not name.endswith(UNUSED) and not _tied(name, wanted, given)]
    if missing or found.unexpected:
        _refuse_quantised(weights)
    if missing and not job.allow_missing:
        raise TorchportError(
            f"the checkpoint lacks {len(missing)} of the model's {len(wanted)} names: "
            + _listed(missing, found.unexpected),
            hint=_advice(found, "--allow-missing exports with what the factory has put there"),
        )
    if found.unexpected and not job.allow_unexpected:
        raise TorchportError(
            f"the checkpoint has {len(found.unexpected)} names that the model has not: "
            + _listed(found.unexpected, missing),
            hint=_advice(found, "--allow-unexpected leaves them out"),
        )
    other = [
        f"{name} has {list(stored.shape)} in the checkpoint and {list(wanted[name].shape)} in the model"
        for name, stored in given.items()
        if tuple(wanted[name].shape) != stored.shape
    ]
    if other:
        raise TorchportError(
            f"{len(other)} shapes do not fit: {'; '.join(other[:SHOWN])}",
            hint="The factory makes another model than was trained: see its arguments (--arguments).",
        )
    with torch.no_grad():
        for name, stored in given.items():
            wanted[name].copy_(_tensor(name, stored))
    return {"removed": found.removed, "missing": missing, "unexpected": found.unexpected, "loaded": len(given)}


def _refuse_quantised(weights: Mapping[str, Stored]) -> None:
    """Raise TorchportError for packed weights: the names of a float model are not in such a checkpoint."""
    for kind, (ends, advice) in QUANTISED.items():
        for name in weights:
            if name.endswith(ends):
                raise TorchportError(
                    f"the checkpoint is quantised ({kind}: it has {name}), and holds no weights of the float model",
                    hint=f"{advice} ATC quantises by itself what AMCT has calibrated.",
                )


def _tied(name: str, wanted: Mapping[str, Any], given: Mapping[str, Stored]) -> bool:
    """Whether the parameter is another's that is given: .safetensors and some trainers store shared ones once."""
    one = wanted[name]
    return any(other in given and wanted[other] is one for other in wanted if other != name)


def _listed(names: Any, others: Any) -> str:
    rows = []
    for name in list(names)[:SHOWN]:
        near = find_nearest_name(name, others)
        rows.append(f"{name}" + (f" (nearest on the other side: {near})" if near else ""))
    return ", ".join(rows) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _advice(found: Match, allowed: str) -> str:
    stripped = f"Stripped was {' '.join(found.removed)}" if found.removed else "No prefix was stripped"
    return f"{stripped}; `torchport checkpoint show --names` lists the checkpoint's; {allowed}."


def _tensor(name: str, stored: Stored) -> Any:
    dtype = getattr(torch, stored.dtype, None)
    try:
        data = read_tensor_bytes(stored)
    except (Unreadable, OSError) as error:
        raise TorchportError(f"tensor {name} cannot be read: {error}") from error
    if not isinstance(dtype, torch.dtype):
        raise TorchportError(f"tensor {name} has the dtype {stored.dtype}, which this torch does not know")
    if not data:
        return torch.empty(stored.shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(stored.shape)


def add_folder(folder: str) -> None:
    """Let the user's modules be found, and behind ours: this process has imported all that it needs before."""
    sys.path.insert(0, folder)
