"""The process in which the modules of a user's model run one by one: needs torch. `module_table` starts it.

`python -m torchport.compare.module_run PACKAGE:FACTORY DEVICE`; its standard output is a line of JSON for each module
and mode, or one that says what failed.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from torchport.compare import scores
from torchport.compare.module_table import ModuleRow
from torchport.compare.precision import get_declared_error
from torchport.compare.scores import Score
from torchport.patches import Patches
from torchport.record import gelu, roundoff

TRAIN = "train"
MODES = (TRAIN, "eval")
# Of what a user's module may be: what it raises on one device is a row of the table, not the end of it.
REFUSALS = (RuntimeError, TypeError, ValueError, AttributeError, IndexError, AssertionError)
OFF = 1e9  # stands for what is no number


class _NothingError(Exception):
    """Why there is no model."""


def main() -> int:
    """Make the model, print its rows."""
    factory, device = sys.argv[1:3]
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the user's code prints is none of ours
    sys.path.insert(0, os.getcwd())
    import torch

    settings: Mapping[str, Any] = {}
    patches = Patches()  # held: torch forgets the kernels of a library that nobody holds
    if device == "npu":
        import torch_npu  # noqa: F401 - the device

        from torchport import vnpu

        settings = {**roundoff.read_npu_formats(torch), "virtual": vnpu.launches() is not None}
        gelu.replace_gelu_kernels(torch, "CPU", patches, lambda note: None)  # as an NPU computes it
    try:
        model, given = _made(torch, factory)
        for mode in MODES:
            for row in Table(torch, device, settings, mode).judge_modules(model, given):
                plain = dataclasses.asdict(row)
                out.write(json.dumps({name: _number(value) for name, value in plain.items()}) + "\n")
    except _NothingError as error:
        out.write(json.dumps({"failed": str(error)}) + "\n")
    out.close()
    return 0


def _number(value: Any) -> Any:
    return OFF if isinstance(value, float) and not math.isfinite(value) else value


def _made(torch: Any, factory: str) -> tuple[Any, tuple[Any, ...]]:
    module, _, name = factory.partition(":")
    try:
        made = getattr(importlib.import_module(module), name)()
    except (Exception, SystemExit) as error:
        raise _NothingError(f"--model {factory} cannot be made: {type(error).__name__}: {error}") from error
    model, given = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(model, torch.nn.Module) or given is None:
        raise _NothingError(f"--model {factory} gives no pair of a torch.nn.Module and its inputs")
    return model.cpu(), tuple(given) if isinstance(given, (list, tuple)) else (given,)


class Table:
    """Runs a model's modules in one mode, each when the model calls it first."""

    def __init__(self, torch: Any, device: str, settings: Mapping[str, Any], mode: str) -> None:
        self._torch = torch
        self._device = device
        self._settings = settings
        self._mode = mode
        self._hooks: dict[int, Any] = {}
        self._rows: list[ModuleRow] = []

    def judge_modules(self, model: Any, given: tuple[Any, ...]) -> Iterator[ModuleRow]:
        """A row for each module that runs."""
        torch = self._torch
        own = copy.deepcopy(model).train(self._mode == TRAIN)
        names = {id(module): name for name, module in own.named_modules()}
        for module in own.modules():
            hook = module.register_forward_pre_hook(
                lambda module, args, kwargs: self._judge(names[id(module)], module, args, kwargs), with_kwargs=True
            )
            self._hooks[hook.id] = hook
        torch.manual_seed(0)
        try:
            with torch.no_grad():
                own(*self._to(given, None, "cpu"))
        except REFUSALS as error:
            raise _NothingError(f"the model does not run on the CPU: {_words(error)}") from error
        yield from self._rows

    def _judge(self, name: str, module: Any, args: Any, kwargs: Any) -> None:
        if any((row.mode, row.module) == (self._mode, name) for row in self._rows):
            return  # called again: shared by several
        about = ModuleRow(self._mode, name, type(module).__name__)
        place = len(self._rows)
        self._rows.append(about)
        torch = self._torch
        state = torch.get_rng_state()
        # The inputs are the model's: a module that writes them writes copies.
        module = self._without_hooks(copy.deepcopy(module))
        try:
            with torch.enable_grad():
                self._rows[place] = self._row(about, module, args, kwargs)
        except REFUSALS as error:
            self._rows[place] = dataclasses.replace(about, why=_words(error))
        finally:
            torch.set_rng_state(state)

    def _without_hooks(self, module: Any) -> Any:
        """Ours, which a copy has as well; others belong to the model."""
        for one in module.modules():
            for number in self._hooks:
                one._forward_pre_hooks.pop(number, None)
                one._forward_pre_hooks_with_kwargs.pop(number, None)
        return module

    def _row(self, about: ModuleRow, module: Any, args: Any, kwargs: Any) -> ModuleRow:
        torch = self._torch
        before = torch.get_rng_state()
        cpu = self._run(module, args, kwargs, None, "cpu")
        if not torch.equal(before, torch.get_rng_state()):
            return dataclasses.replace(about, why="it draws random numbers")
        exact = self._run(module, args, kwargs, torch.float64, "cpu")
        made = self._run(module, args, kwargs, None, self._device)
        noisy: dict[str, Any] | None = None
        found: list[tuple[str, Score]] = []
        for name, right in exact.items():
            if name not in made or name not in cpu:
                continue
            dtype = str(made[name].dtype).removeprefix("torch.")
            limit, _ = get_declared_error(_family(module), dtype, self._device, self._settings)
            score = scores.score_result(torch, made[name], cpu[name], right, limit)
            if score.wrong and not score.spoilt:
                noisy = noisy or self._run(module, args, kwargs, torch.float64, "cpu", scores.NOISE)
                score = scores.adjust_for_conditioning(score, right, noisy[name], dtype)
            found.append((name, score))
        if not found:
            return dataclasses.replace(about, why="it gives no floating-point numbers")
        name, worst = max(found, key=lambda one: (one[1].wrong, one[1].score))
        return dataclasses.replace(
            about,
            score=worst.score,
            error=worst.error,
            cpu=worst.cpu,
            declared=worst.declared,
            wrong=worst.wrong,
            result=name,
            results=len(found),
            spoilt=worst.spoilt,
        )

    def _run(self, module: Any, args: Any, kwargs: Any, dtype: Any, device: str, noise: float = 0.0) -> dict[str, Any]:
        """The floating-point outputs of a copy on the CPU, and its gradients by inputs and parameters, by name."""
        torch = self._torch
        own = copy.deepcopy(module)
        draws = torch.Generator().manual_seed(1)
        own = own.to(device) if dtype is None else own.to(device, dtype)
        args, kwargs = (self._to(given, dtype, device) for given in (args, kwargs))
        leaves = {
            f"input {place}": one
            for place, one in enumerate(torch.utils._pytree.tree_leaves((args, kwargs)))
            if isinstance(one, torch.Tensor) and one.is_floating_point()
        }
        leaves |= {name: one for name, one in own.named_parameters() if one.requires_grad}
        for one in leaves.values() if noise else ():
            one.data.mul_(1 + noise * (torch.rand(one.shape, generator=draws, dtype=one.dtype) * 2 - 1))
        for one in leaves.values():
            one.requires_grad_()
        # Clones, as what a leaf's memory holds may not be written.
        followed = self._map((args, kwargs), lambda one: one.clone())
        made = own(*followed[0], **followed[1])
        outputs = {
            f"output {place}": one
            for place, one in enumerate(torch.utils._pytree.tree_leaves(made))
            if isinstance(one, torch.Tensor) and one.is_floating_point()
        }
        known = {name: one.detach().cpu() for name, one in outputs.items()}
        roots = [output for output in outputs.values() if output.grad_fn is not None]
        if roots and leaves:
            seeds = [self._seed(one, place) for place, one in enumerate(roots)]
            found = torch.autograd.grad(roots, list(leaves.values()), seeds, allow_unused=True)
            for name, one in zip(leaves, found, strict=True):
                if one is not None:
                    known[f"gradient of {name}"] = one.detach().cpu()
        return {name: one for name, one in known.items() if one.numel()}

    def _seed(self, like: Any, place: int) -> Any:
        """The same gradient of an output on every device, and the same numbers in every dtype."""
        torch = self._torch
        draws = torch.Generator().manual_seed(place)
        return torch.randint(-4, 5, like.shape, generator=draws).to(like.device, like.dtype)

    def _to(self, given: Any, dtype: Any, device: str) -> Any:
        def moved(one: Any) -> Any:
            made = one.detach().clone().to(device)
            return made.to(dtype) if dtype is not None and made.is_floating_point() else made

        return self._map(given, moved)

    def _map(self, given: Any, change: Any) -> Any:
        torch = self._torch
        return torch.utils._pytree.tree_map(lambda one: change(one) if isinstance(one, torch.Tensor) else one, given)


def _family(module: Any) -> str:
    """The operator whose precision a device may be told to cut that a module may call."""
    kinds = {type(one).__name__ for one in module.modules()}
    return "aten::convolution" if any("Conv" in kind for kind in kinds) else "aten::mm"


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
