"""Watch a training process: what it loses at each step, where it computes, what makes two runs differ by chance.

Nothing is changed in what the script computes, but for what it is asked for: random streams that the script leaves to
chance are seeded, and draws are the same in both runs of a port (`draws`). The device is waited for once a step, after
the optimizer: what was lost, and what the parts of the recording measured, is read together then (`readings`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import math
import os
import random
import time
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from torchport import vnpu
from torchport.on_import import after_import
from torchport.patches import Patches
from torchport.record import quiet
from torchport.record.calls import OutermostCalls
from torchport.record.cards import list_opened_cards
from torchport.record.casting import Casting
from torchport.record.equal import EqualStart
from torchport.record.evaluations import Evaluations
from torchport.record.inputs import Inputs
from torchport.record.limit import Limit
from torchport.record.names import Names, list_parameters
from torchport.record.part import Part
from torchport.record.placed import Placed, name_own_device
from torchport.record.readings import Readings
from torchport.record.recording import BACKWARD, CALL, GRADIENT, OPTIMIZER, Journal
from torchport.record.scaling import Scaling
from torchport.record.sites import Sites
from torchport.record.transforms import Transforms

# Modules of this package that dynamo is to leave alone.
UNTRACED = (
    "inputs",
    "limit",
    "names",
    "norms",
    "operators.hook",
    "operators.part",
    "operators.scopes",
    "quantities",
    "quiet",
    "readings",
    "recorder",
    "recording",
    "scaling",
    "steps_on_devices",
    "used_devices",
)
# How an optimizer computes, not what.
IMPLEMENTATION = ("foreach", "fused", "capturable", "differentiable", "decoupled_weight_decay")


class Recorder:
    """Records into `journal` from `install` to `undo`.

    `seed` seeds Python's, numpy's and torch's generators before the script can; a script that seeds them itself
    overrides it. `prepare(torch)` runs first thing after `import torch`; what it returns is undone last.
    `equal(torch, key)` makes the `EqualStart` that this run takes part in. `limit` is asked after each step of the
    kind `kind` ("": an optimizer's; without one, whatever there is). With `spoil` the first evaluation is recorded as
    one in training mode. `name_device` gives the type of a tensor's device, or of the one that the script asked for.
    """

    def __init__(
        self,
        journal: Journal,
        sites: Sites,
        limit: Limit,
        seed: int,
        prepare: Callable[[Any, Patches], None] | None = None,
        equal: Callable[[Any, Callable[[], str]], EqualStart] | None = None,
        kind: str = "",
        *,
        spoil: bool = False,
        name_device: Callable[[Any], str] = name_own_device,
    ) -> None:
        self._journal = journal
        self._sites = sites
        self._limit = limit
        self._seed = seed
        self._prepare = prepare
        self._make_equal = equal
        self._kind = kind
        self._spoil = spoil
        self._placed = Placed(self._write, name_device)
        self._equal: EqualStart | None = None
        self._calls: OutermostCalls | None = None
        self._patches = Patches()
        self._undo: list[Callable[[], None]] = []
        self._torch: Any = None
        self._losses = 0
        self._updates = 0
        # Optimizers that step, each within the one before; and whether that is a step of its own.
        self._stepping_now: list[tuple[Any, bool]] = []
        self._last: float | None = None
        self._passes = False  # some `backward()` was called
        self._inside = False
        self._loss_waits = False
        self._rank: tuple[int, int] | None = None
        self._optimizers = 0
        self._built: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._settings: dict[int, list[dict[str, Any]]] = {}
        self._calls_at: dict[str, int] = {}
        self._replicas: list[Any] = []
        self._scaling: Scaling
        self.readings: Readings
        self.names: Names
        self.parts: list[Part] = []
        self.rules: list[Any] = []  # of `invariants`

    @property
    def optimizers(self) -> int:
        """How many optimizers were built."""
        return self._optimizers

    def install(self) -> None:
        """Seed what is there and watch for the rest being imported."""
        # Our hooks are the global ones; what they would see twice is not recorded twice.
        warnings.filterwarnings("ignore", message="Using `torch.compile.module.` when there are global hooks")
        random.seed(self._seed)
        self._log_seeds(random, "seed", "random")
        self._undo.append(after_import("numpy", self._numpy_imported))
        self._undo.append(after_import("torch", self._torch_imported))
        self._undo.append(after_import("torch._dynamo.trace_rules", self._keep_out))

    def undo(self) -> None:
        """Put every patched attribute back and stop watching."""
        self._flush()
        if self._equal is not None:
            self._equal.remove_hook()
        if self._calls is not None:
            self._calls.remove_hooks()
        self._patches.undo()
        while self._undo:
            self._undo.pop()()

    @quiet.silence_operators
    def finish(self) -> None:
        """Record what only the end shows, while the device still works."""
        with contextlib.ExitStack() as ends:  # each part ends, whatever another raises
            for part in reversed(self.parts):
                ends.callback(part.finish)
            self._flush()
            for number, replica in enumerate(reference() for reference in self._replicas):
                if replica is not None:
                    self._journal.write_event("replica", number=number, checksum=_checksum(self._torch, replica))
            self._replicas.clear()
            self._note_cards()
        self._flush()

    @quiet.silence_operators
    def _flush(self) -> None:
        if self._torch is not None:
            self._loss_waits = False
            self.readings.flush()

    def _write(self, kind: str, **fields: Any) -> None:
        """Append an event after those that wait for the device."""
        self.readings.schedule_write((), lambda _: self._journal.write_event(kind, **fields))

    def _numpy_imported(self, numpy: ModuleType) -> None:
        numpy.random.seed(self._seed)
        self._log_seeds(numpy.random, "seed", "numpy")
        unseeded = iter(range(2**31))

        def default_rng(original: Any) -> Any:
            return lambda seed=None: original([self._seed, next(unseeded)] if seed is None else seed)

        self._patches.wrap(numpy.random, "default_rng", default_rng)

    def _torch_imported(self, torch: Any) -> None:
        self._torch = torch
        _make_tables(torch)
        backend = torch._C._get_privateuse1_backend_name() if hasattr(torch, "npu") else "cpu"
        self._journal.write_event("torch", version=torch.__version__, backend=backend, threads=torch.get_num_threads())
        torch.manual_seed(self._seed)
        self.readings, self.names = Readings(torch), Names(torch)
        self._scaling = Scaling(torch, self._write)
        inputs = Inputs(torch, self._journal.write_event, self.readings)
        evaluations = Evaluations(torch, self._journal.write_event, self.readings, spoil=self._spoil)
        self.parts += [self._scaling, inputs, evaluations]
        if self._prepare is not None:
            self._prepare(torch, self._patches)
        self._log_seeds(torch, "manual_seed", "torch")
        self._patches.wrap(torch.autograd, "backward", self._backward)
        self._patches.wrap(torch.autograd, "grad", self._grad)
        Transforms(torch, self._transformed).install(self._patches)
        Casting(torch, self._journal.write_event, self._sites).install(self._patches)
        self._scaling.install(self._patches)
        optimizers = importlib.import_module("torch.optim.optimizer")  # no attribute of torch.optim
        for hook in (
            optimizers.register_optimizer_step_pre_hook(self._stepping),
            optimizers.register_optimizer_step_post_hook(self._stepped),
        ):
            self._undo.append(hook.remove)
        self._calls = OutermostCalls(
            torch,
            self._sites,
            self._called,
            inputs.record_inputs,
            self._enter_call,
            self._place_call,
            evaluations.record_call,
        )
        if self._make_equal is not None:
            self._equal = self._make_equal(torch, self.get_process_key)
        self._patches.wrap(torch.optim.Optimizer, "__init__", self._constructed)
        if torch.distributed.is_available():
            self._patches.wrap(torch.nn.parallel.DistributedDataParallel, "__init__", self._replicated)
        if self._equal is not None:
            self._equal.install()

    def _keep_out(self, rules: Any) -> None:
        """Let dynamo run what records a compiled optimizer as it is: traced, it would read numbers that are not there.
        What modules and tensors call (`calls`, `uploads`) is not kept out: it must not break a graph."""
        if not hasattr(rules, "add"):  # a torch of before 2.2
            return
        before = list(rules.SKIP_DIRS)

        def restore() -> None:
            rules.SKIP_DIRS[:] = before
            rules._recompile_re()

        self._undo.append(restore)
        for name in UNTRACED:
            rules.add(f"{__package__}.{name}")

    def _log_seeds(self, module: ModuleType, name: str, of: str) -> None:
        def wrapper(original: Any) -> Any:
            def seed(*args: Any, **kwargs: Any) -> Any:
                values = [*args, *kwargs.values()]
                self._journal.write_event("seed", of=of, value=str(values[0]) if values else None)
                return original(*args, **kwargs)

            return seed

        self._patches.wrap(module, name, wrapper)

    def _constructed(self, original: Any) -> Any:
        def init(this: Any, *args: Any, **kwargs: Any) -> None:
            original(this, *args, **kwargs)
            self._built[this] = self._optimizers
            self._optimizers += 1
            parameters = list_parameters(this)
            self._journal.write_event("optimizer", name=type(this).__name__, parameters=len(parameters))
            self.names.learn_variables(self._sites.find_user_frame(2), parameters)
            if self._equal is not None:
                self._equal.optimizer_built(this)

        return init

    def _replicated(self, original: Any) -> Any:
        def init(this: Any, *args: Any, **kwargs: Any) -> None:
            original(this, *args, **kwargs)
            self._replicas.append(weakref.ref(this))
            self._write("replicated", module=type(this.module).__name__)

        return init

    def _backward(self, original: Any) -> Any:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside:  # activation checkpointing calls backward within backward
                return original(tensors, *args, **kwargs)
            site = self._record_loss("backward", tensors)
            self._inside, self._passes = True, True
            try:
                result = original(tensors, *args, **kwargs)
            finally:
                self._inside = False
            self._differentiated(site, "backward", None)
            if not self._optimizers:
                self._flush()
                self._done(BACKWARD, self._losses)
            return result

        return backward

    def _grad(self, original: Any) -> Any:
        def grad(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return original(outputs, *args, **kwargs)
            site = self._record_loss("grad", outputs)
            result = original(outputs, *args, **kwargs)
            self._differentiated(site, "grad", result)
            if site and not self._optimizers:  # else it is the inside of a transform, which is a step as a whole
                self._flush()
                self._done(GRADIENT, self._losses)
            return result

        return grad

    @quiet.silence_operators
    def _transformed(self, results: list[Any]) -> None:
        """Without `backward()`, what transforms of functions give is what a step computes."""
        if self._inside or self._passes or not self.readings.can_read():
            return
        with self._torch.no_grad():
            norm = self._torch.stack([one.detach().float().norm() for one in results]).norm()
        site = self._record_loss("grad", norm)
        self._differentiated(site, "grad", results)
        if not self._optimizers:
            self._flush()
            self._done(GRADIENT, self._losses)

    @quiet.silence_operators
    def _record_loss(self, by: str, tensors: Any) -> str:
        """Record the root of a backward pass; its site, "" where nothing can be recorded."""
        if not self.readings.can_read():
            return ""
        torch = self._torch
        parts = (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)
        parts = tuple(part for part in parts if isinstance(part, torch.Tensor))
        if not parts:
            return ""
        if self._losses == 0:
            self._training_starts()
        site = self._sites.find_user_line(3)
        self._lost(site, by, parts)
        self._losses += 1
        self._limit.count_value(site, self._updates if self._optimizers else self._losses - 1)
        for one in self.parts:
            one.on_backward_begin(site, by, parts)
        return site

    def _lost(self, site: str, by: str, parts: tuple[Any, ...]) -> None:
        if self._loss_waits:  # a process that dies loses no more than one
            self._flush()
        scale, elapsed, device = self._scaling.take_scale(), self._journal.get_elapsed_seconds(), parts[0].device.type

        def write(value: float) -> None:
            self._journal.write_event(
                "loss",
                site=site,
                by=by,
                value=value / scale,
                device=device,
                launches=self._launches(wait=device == "cpu"),
                elapsed=elapsed,
            )

        if len(parts) == 1 and _exact(self._torch, parts[0]):
            self._loss_waits = True
            # A copy: scripts add up losses in place.
            self.readings.schedule_write([parts[0].detach().clone()], lambda values: write(values[0][0]))
        else:
            self._flush()
            write(sum(_value(part) for part in parts))

    @quiet.silence_operators
    def _differentiated(self, site: str, by: str, results: Any) -> None:
        if site:
            for part in self.parts:
                part.on_backward_end(site, by, results)

    def _training_starts(self) -> None:
        """From now on weights belong to the runs, and losses tell more than what modules give."""
        if self._equal is not None:
            self._equal.training_started()
        if self._calls is not None:
            self._calls.called = None
        for part in self.parts:
            part.training_starts()

    @quiet.silence_operators
    def _stepping(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._forget_steps_from(optimizer)  # its last step may have raised
        counts = not any(_is_inside(optimizer, outer) for outer, _ in self._stepping_now)
        self._stepping_now.append((optimizer, counts))
        number = self._built.get(optimizer, -1)
        closure = (kwargs.get("closure") or [*args[1:], None][0]) is not None  # args[0] is the optimizer
        if counts and self._equal is not None:
            self._equal.optimizer_steps(optimizer, number)
        for part in self.parts if counts else self.rules:  # the inner one may be that with the gradients
            part.on_step_begin(optimizer, number, self._updates, closure)

    @quiet.silence_operators
    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self._forget_steps_from(optimizer):
            for rule in self.rules:
                rule.on_step_end(optimizer, self._built.get(optimizer, -1), self._updates)
            return
        parameter, gradient = "", ""
        for tensor in list_parameters(optimizer):
            parameter = _first(parameter, tensor.device.type)
            if tensor.grad is not None:
                gradient = _first(gradient, tensor.grad.device.type)
            if parameter == "npu" and gradient:
                break
        now = time.perf_counter()
        seconds = None if self._last is None else now - self._last
        self._last = now
        fields = {"step": self._updates, "seconds": seconds, "elapsed": self._journal.get_elapsed_seconds()}

        def write(_: Any) -> None:
            launches = self._launches(wait=False)  # after the device was waited for
            self._journal.write_event("step", device=parameter, gradient=gradient, launches=launches, **fields)

        self.readings.schedule_write((), write)
        self._record_settings(optimizer)
        for part in self.parts:
            part.on_step_end(optimizer, self._built.get(optimizer, -1), self._updates)
        self._flush()
        self._updates += 1
        self._done(OPTIMIZER, self._updates)

    def _forget_steps_from(self, optimizer: Any) -> bool:
        """Take this optimizer's step, and steps within it, from the steps that go on; whether it is one of its own."""
        for at, (other, counts) in enumerate(self._stepping_now):
            if other is optimizer:
                del self._stepping_now[at:]
                return counts
        return True

    def _record_settings(self, optimizer: Any) -> None:
        number = self._built.get(optimizer, -1)
        groups = [read_hyperparameters(group) for group in optimizer.param_groups]
        if groups != self._settings.get(number):
            self._settings[number] = groups
            self._write("settings", optimizer=number, step=self._updates, groups=groups)

    def _enter_call(self, module: Any) -> None:
        self.names.learn_module(module)
        for rule in self.rules:
            rule.on_call_begin(module)

    def _place_call(self, site: str, module: Any) -> None:
        self._placed.record_call(site, module)
        for rule in self.rules:
            rule.on_call(site, module)

    def _called(self, site: str, value: float, device: str, number: int) -> None:
        self._write(
            "call",
            site=site,
            value=value,
            device=device,
            launches=self._launches(wait=device == "cpu"),
            elapsed=self._journal.get_elapsed_seconds(),
        )
        self._limit.count_value(site, number)
        # Before training, modules are called to look at them: only an evaluation that goes on and on is steps.
        if not self._optimizers and not self._torch.is_grad_enabled():
            self._calls_at[site] = self._calls_at.get(site, 0) + 1
            self._done(CALL, self._calls_at[site])

    def _done(self, kind: str, steps: int) -> None:
        if self._kind not in ("", kind):
            return
        if steps == 1:
            self._journal.write_event("memory", resident=_resident(), machine=_machine_memory())
            self._note_cards()
            self._identify()
        for part in self.parts:
            part.step_done()
        rank, world = self._rank or (0, 1)
        self._limit.check_limit(steps, world, rank)

    def _note_cards(self) -> None:
        cards = [dataclasses.asdict(card) for card in list_opened_cards(self._torch)]
        if cards:
            self._journal.write_event("cards", cards=cards)

    def _identify(self) -> None:
        distributed = self._torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            self._rank = (distributed.get_rank(), distributed.get_world_size())
        self._journal.write_event("process", **process_fields(*(self._rank or _announced())))

    def get_process_rank(self) -> int | None:
        """This process's rank in a job; None where it has none."""
        return (self._rank or _announced())[0]

    def get_process_key(self) -> str:
        """Names this process among those of the run, in the same way in both runs."""
        fields = process_fields(*(self._rank or _announced()))
        return f"rank{fields['rank']}" if fields["rank"] is not None else str(fields["name"])

    def _launches(self, *, wait: bool) -> int | None:
        """How many operators this process has launched; those that torch_npu still has in its queue too with `wait`."""
        npu = vars(self._torch).get("npu")  # getattr for what torch lacks takes long
        if npu is None:
            return None
        if wait and npu.is_initialized():
            npu.synchronize()
        return vnpu.launches()


def _make_tables(torch: Any) -> None:
    """Make torch's tables of its own functions, which it does at their first use: they must have the functions as they
    were, or `with torch.device("meta")` and TorchScript would not know what was replaced."""
    importlib.import_module("torch.utils._device")._device_constructors()
    torch.jit._builtins._get_builtin_table()


def read_hyperparameters(group: dict[str, Any]) -> dict[str, Any]:
    """The hyper-parameters of a parameter group: its numbers and words, without those that only say how the same is
    computed."""
    found: dict[str, Any] = {}
    for name, value in group.items():
        if name in ("params", *IMPLEMENTATION):
            continue
        if hasattr(value, "numel") and value.numel() == 1:  # the learning rate of a captured graph
            value = value.item()
        if isinstance(value, (list, tuple)):
            value = [float(part) for part in value if isinstance(part, (int, float))]
        if value is None or isinstance(value, (bool, int, str, list)):
            found[name] = value
        elif isinstance(value, float):
            found[name] = value if math.isfinite(value) else str(value)
    return found


def process_fields(rank: int | None = None, world: int | None = None) -> dict[str, Any]:
    """Who this process is."""
    import multiprocessing

    return {"pid": os.getpid(), "name": multiprocessing.current_process().name, "rank": rank, "world": world}


def _announced() -> tuple[int | None, int | None]:
    """What torchrun says of this process."""
    rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    return (int(rank), int(world)) if rank.isdigit() and world.isdigit() else (None, None)


def _first(known: str, new: str) -> str:
    return new if not known or new == "npu" else known


def _exact(torch: Any, tensor: Any) -> bool:
    """Whether `Readings` gives its one number as it is."""
    return tensor.numel() == 1 and tensor.dtype in (torch.float32, torch.float16, torch.bfloat16)


def _value(tensor: Any) -> float:
    """A number, or the norm of several: their sum may be made of rounding alone, such as that of a derivative."""
    tensor = tensor.detach()
    return float(tensor.item() if tensor.numel() == 1 else tensor.cpu().double().norm().item())


def _checksum(torch: Any, module: Any) -> float:
    total = 0.0
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters(), 1):
            if parameter.device.type != "meta":
                total += parameter.detach().cpu().double().sum().item() / number
    return total


def _resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _machine_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _is_inside(optimizer: Any, outer: Any) -> bool:
    """Whether an optimizer that steps within the step of another has none but its parameters: SAM, Lookahead, and
    containers such as torchtitan's are optimizers themselves, and both steps are one of the training."""
    held = {id(parameter) for parameter in list_parameters(outer)}
    return optimizer is not outer and all(id(parameter) in held for parameter in list_parameters(optimizer))
