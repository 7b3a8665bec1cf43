"""Make two runs of a script start from the same numbers, whatever device drew them.

The first run saves parameters, buffers and the states of the random generators: as each optimizer is built, and again
when the model is called for the first time (a script may initialise or load weights in between); and what an optimizer
remembers before its first step, which it does if the script goes on from a checkpoint. The second run loads
them at the same places, of the generators only the CPU's. After the first `backward()` only parameters that were never
seen are exchanged, for an optimizer that is built later.

Both runs draw the same random numbers, so the second run's own tensors should equal the first's. How far they are
from them is recorded (`start`) before they are overwritten: a port that has lost its pretrained weights, or initialises
otherwise, would be proven right by weights that are not its own.

A control run spoils a weight before it is compared, on purpose (`planted`): the record has to show it.
"""

from __future__ import annotations

import functools
import math
import os
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchport.record import quiet, releases, snapshot
from torchport.record.names import list_parameters
from torchport.record.noise import own_generator, perturb_weights
from torchport.record.recording import Journal

# A spoilt weight differs by so much at least, and by no more than `OWN` before it is spoilt
# (`measure_difference`): half a unit in the last place of bfloat16 is less.
SPOILT, OWN = 0.5, 0.05


class EqualStart:
    """Saves to `directory`, or with `load` loads from it; `torch` is the imported module.

    `key()` names this process among those of its run: each has files of its own. `generator` says whether the state
    of the CPU's random generator goes along. With `noise`, the number of a draw, what is loaded is moved by one unit
    in its last place, up or down at random: as little as rounding does. With `spoil` one weight has its elements in
    reverse order while it is compared. `find_name` gives the name of a parameter, "" for one that has none.

    A forked child exchanges nothing: a data loader's workers call modules too (SimCLR blurs with a convolution), and
    they would all write the file of one name.
    """

    def __init__(
        self,
        torch: Any,
        directory: Path,
        key: Callable[[], str],
        journal: Journal,
        *,
        load: bool,
        generator: bool = True,
        noise: int = 0,
        spoil: bool = False,
        find_name: Callable[[Any], str] = lambda parameter: "",
    ) -> None:
        self._torch = torch
        self._process = os.getpid()
        self._folder = directory
        self._key = key
        self._loading = load
        self._find_name = find_name
        self._transfer = self._load if load else self._save
        self._journal = journal
        self._generator = generator
        self._noise = own_generator(torch, noise) if noise else None
        self._spoil = spoil
        self._spoilt: Any = torch.utils.weak.WeakIdKeyDictionary()
        self._known = torch.utils.weak.WeakIdKeyDictionary()
        # Tensors that had other numbers, and no name yet.
        self._apart: Any = torch.utils.weak.WeakIdKeyDictionary()
        self._stepped: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self._counts = {"optimizer": 0, "module": 0}
        self._started = False
        self._hook: Any = None

    @functools.cached_property
    def _directory(self) -> Path:
        folder = self._folder / self._key()
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def install(self) -> None:
        """Watch the model's first call; the recorder tells of optimizers."""
        self._hook = self._torch.nn.modules.module.register_module_forward_pre_hook(self._called)

    def optimizer_built(self, optimizer: Any) -> None:
        """Exchange the parameters that `optimizer` will train."""
        if os.getpid() != self._process:
            return
        parameters = list_parameters(optimizer)
        names = list(map(self._find_name, parameters))
        if not all(names) or len(set(names)) < len(names):
            names = list(map(str, range(len(names))))
        named = dict(zip(names, parameters, strict=True))
        if self._started:
            named = {name: parameter for name, parameter in named.items() if parameter not in self._known}
        self._exchange("optimizer", named)

    def optimizer_steps(self, optimizer: Any, number: int) -> None:
        """Exchange what `optimizer` remembers before its first step: a training that goes on from a checkpoint.
        The start of a later stage is told here."""
        if optimizer in self._stepped or os.getpid() != self._process:
            return
        self._stepped[optimizer] = True
        parameters = list_parameters(optimizer)
        self._tell_unnamed([parameter for parameter in parameters if parameter in self._apart])
        strided = self._torch.strided
        named = {
            f"{key} of {self._find_name(parameter) or f'parameter {place} of optimizer {number}'}": value
            for place, parameter in enumerate(parameters)
            for key, value in optimizer.state.get(parameter, {}).items()
            if isinstance(value, self._torch.Tensor) and value.layout == strided and value.is_floating_point()
        }
        name = f"state-{number}"
        if named:
            self._transfer(name, named)
        elif self._loading and (self._directory / f"{name}.pt").exists():
            self._journal.write_event(
                "start", tensor=f"state of optimizer {number}", dtype="float32", difference=math.inf
            )

    def training_started(self) -> None:
        """The first `backward()` is about to run: from now on weights belong to the runs."""
        if not self._started:
            self._started = True
            self._tell_unnamed([*self._apart])
            self._apart.clear()
        self.remove_hook()

    def remove_hook(self) -> None:
        """Stop watching the model."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _called(self, module: Any, inputs: Any) -> None:
        # The compiled module itself was called before; within a transform parameters may be replaced by wrappers.
        if releases.is_compiling(self._torch) or releases.is_within_transform(self._torch):
            return
        if os.getpid() != self._process:  # behind the others: dynamo does not trace it
            return
        named = dict(module.named_parameters())
        if any(parameter not in self._known or not self._known[parameter] for parameter in named.values()):
            named.update(module.named_buffers())
            self._exchange("module", named)
            for parameter in named.values():
                self._known[parameter] = True  # called: its children need no exchange of their own

    @quiet.silence_operators
    def _exchange(self, kind: str, named: Mapping[str, Any]) -> None:
        plain = {
            name: tensor
            for name, tensor in named.items()
            if tensor.layout == self._torch.strided and tensor.device.type != "meta"
        }
        for tensor in plain.values():
            self._known.setdefault(tensor, False)
            if tensor.dtype in (self._torch.float16, self._torch.bfloat16):
                self._journal.write_event("precision", dtype=str(tensor.dtype).removeprefix("torch."))
        name = f"{kind}-{self._counts[kind]}"
        self._counts[kind] += 1
        if plain:
            self._transfer(name, plain)

    def _save(self, name: str, tensors: Mapping[str, Any]) -> None:
        path = self._directory / f"{name}.pt"
        aside = path.with_suffix(".unfinished")
        values = {key: tensor.detach().cpu().clone() for key, tensor in tensors.items()}
        state = {
            "tensors": values,
            "generator": self._torch.default_generator.get_state(),
            "generators": snapshot.read_generator_states(self._torch),
        }
        self._torch.save(state, aside)
        os.replace(aside, path)
        self._journal.write_event("weights", name=name, action="saved", detail=f"{len(values)} tensors")

    def _load(self, name: str, tensors: Mapping[str, Any]) -> None:
        path = self._directory / f"{name}.pt"
        if not path.exists():
            self._journal.write_event(
                "weights", name=name, action="mismatch", detail="the reference run has no such step"
            )
            return
        import pickle  # slow to import, and only few runs start from another's weights

        try:
            stored = self._torch.load(path, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
            detail = f"{path} is damaged ({error}): do the step `reference` again"
            self._journal.write_event("weights", name=name, action="mismatch", detail=detail)
            return
        values = stored["tensors"]
        shapes = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
        expected = {key: tuple(value.shape) for key, value in values.items()}
        if shapes != expected:
            differing = sorted(key for key in shapes.keys() | expected.keys() if shapes.get(key) != expected.get(key))
            detail = f"names or shapes differ, first {differing[0]!r}"
            self._journal.write_event("weights", name=name, action="mismatch", detail=detail)
            return
        values = {key: find_part(value) for key, value in values.items()}
        with self._torch.no_grad():
            if self._spoil and not self._started and not name.startswith("state"):
                self._spoil_weight(tensors, values)
            for key, tensor in tensors.items():
                loaded = values[key] if self._noise is None else self._moved(values[key])
                self._compare(name, key, tensor, values[key], loaded)
                find_part(tensor).copy_(loaded)
        if self._generator:
            self._torch.default_generator.set_state(stored["generator"])
        self._journal.write_event("weights", name=name, action="loaded", detail=f"{len(values)} tensors")

    def _compare(self, name: str, key: str, tensor: Any, value: Any, loaded: Any) -> None:
        """Note a tensor that is not the original's `value`; it is about to become `loaded`. A module that is called
        later knows its name, an optimizer none."""
        difference = measure_difference(self._torch, tensor, value)
        if name.startswith("state"):
            self._tell(key, tensor, difference)
            return
        if name.startswith("optimizer"):
            if difference:
                called = self._find_name(tensor) or f"{name.replace('-', ' ')}, parameter {key}"
                # A later stage goes on with trained weights, moved by rounding; a bias before a BatchNorm,
                # whose gradient is rounding alone, by as much as its size.
                later = {"share": measure_share(self._torch, tensor, value)} if self._started else {}
                if tensor.dim() > 1 or not self._started:
                    self._apart[tensor] = called, difference, value, loaded, later
            return
        before = self._apart.pop(tensor, None)
        same = before is not None and self._torch.equal(value, before[2])  # the original has loaded nothing since
        if before is not None and same and _is_as_loaded(self._torch, tensor, before[3]):
            difference = before[1]
        self._tell(key, tensor, difference)

    @quiet.silence_operators
    def _tell_unnamed(self, tensors: list[Any]) -> None:
        for tensor in tensors:
            name, difference, _, loaded, later = self._apart.pop(tensor)
            if _is_as_loaded(self._torch, tensor, loaded):
                self._tell(name, tensor, difference, **later)

    def _tell(self, tensor_name: str, tensor: Any, difference: float, **more: Any) -> None:
        if difference:
            dtype = str(tensor.dtype).removeprefix("torch.")
            if tensor in self._spoilt:
                more["planted"] = True
            self._journal.write_event("start", tensor=tensor_name, dtype=dtype, difference=difference, **more)

    def _spoil_weight(self, tensors: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Reverse the elements of the first weight that is as the original's, and is another one then."""
        for key, tensor in sorted(tensors.items(), key=lambda row: row[1].dim() < 2):
            # One that this run draws by itself has been told apart before: it is no longer to be seen.
            drawn = tensor in self._apart and tensor not in self._spoilt
            if drawn or not tensor.is_floating_point():
                continue
            if measure_difference(self._torch, tensor, values[key]) > OWN:
                continue
            part = find_part(tensor)
            other = part.flatten().flip(0).view_as(part)
            if measure_difference(self._torch, other, values[key]) > SPOILT:
                part.copy_(other)
                self._spoilt[tensor] = True
                self._journal.write_event("planted", name="start", where=self._find_name(tensor) or key)
                return

    def _moved(self, value: Any) -> Any:
        return perturb_weights(self._torch, value, self._noise)


def find_part(tensor: Any) -> Any:
    """This rank's part of a DTensor, which FSDP2 makes of parameters and not all operators take; else `tensor`."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def measure_difference(torch: Any, tensor: Any, value: Any) -> float:
    """The largest difference of an element, related to the root mean square of the larger tensor; 0 for equal tensors,
    infinite where the one has numbers and the other has none, or where they are no floating-point numbers.

    `value` is on the CPU and of the same shape."""
    own = find_part(tensor).detach().cpu()
    if own.dtype == value.dtype and torch.equal(own, value):
        return 0.0
    if not (own.is_floating_point() or own.is_complex()):
        return 0.0 if torch.equal(own, value.to(own.dtype)) else math.inf
    wide = torch.complex128 if own.is_complex() else torch.float64
    one, other = own.to(wide), value.to(wide)
    numbers = one.isfinite() & other.isfinite()
    if not torch.equal(one.isfinite(), other.isfinite()):
        return math.inf
    one, other = one[numbers], other[numbers]
    if not one.numel():
        return 0.0
    size = max(float(each.abs().square().mean().sqrt()) for each in (one, other))
    return float((one - other).abs().max()) / size if size else 0.0


def measure_share(torch: Any, tensor: Any, value: Any) -> float:
    """The norm of the difference, related to that of the larger tensor; infinite where one has no such norm."""
    own, other = (find_part(each).detach().cpu().to(torch.float64) for each in (tensor, value))
    size = max(float(own.norm()), float(other.norm()))
    share = float((own - other).norm()) / size if size else 0.0
    return share if math.isfinite(share) else math.inf


def _is_as_loaded(torch: Any, tensor: Any, value: Any) -> bool:
    """Whether nothing has written other numbers since: a checkpoint that is loaded later makes up for them."""
    return bool(torch.equal(find_part(tensor).detach().cpu().to(value.dtype), value))
