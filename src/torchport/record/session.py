"""One process of a recorded run: what Python does at its start where TORCHPORT_RECORD is set.

The user's command runs as it is; every Python process below it comes by here (`start/sitecustomize.py`), so
launchers, their ranks and spawned children are all recorded, each in a journal of its own.
"""

from __future__ import annotations

import atexit
import dataclasses
import faulthandler
import importlib
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchport import collector, standins
from torchport.patches import Patches, disguise
from torchport.record import recording, snapshot, used_devices
from torchport.record.equal import EqualStart
from torchport.record.faults import Faults
from torchport.record.float_status import FloatStatus
from torchport.record.limit import Limit
from torchport.record.noise import Noise
from torchport.record.part import Part
from torchport.record.placed import name_own_device
from torchport.record.recorder import Recorder, process_fields
from torchport.record.recording import Journal
from torchport.record.roundoff import Device
from torchport.record.sites import INSTALLED, Sites
from torchport.record.states import MOST_BYTES, MOST_KEPT, States
from torchport.record.surroundings import Surroundings
from torchport.record.tf32 import Tf32

if TYPE_CHECKING:
    from torchport.record.pack import Batches

VARIABLE = "TORCHPORT_RECORD"
# Whose run it is: the original on the CPU for a port, the port; or a script in place on a GPU or an NPU.
REFERENCE, PORT, CUDA, NPU = "reference", "port", "cuda", "npu"
_session: Session | None = None
# What torch_npu and CANN put before their sentences: "[ERROR] 2026-01-01-00:00:00 (PID:1, Device:0, RankID:-1) ".
_STAMP = re.compile(r"\[(?:ERROR|PID: \d+)\] \d{4}-\d\d-\d\d-[\d:.]+ (?:\(PID:\d+, Device:-?\d+, RankID:-?\d+\) )?")
_OURS = str(Path(__file__).parents[1])


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What a run is asked to record. Paths are absolute.

    `side` is REFERENCE (a CUDA script on the CPU), PORT, CUDA, NPU, or "" for a run that is left as it is; `views` maps
    each folder of the user's to what stands for it in this run, `roots` are those folders for a run in place; `lines`
    is a JSON file for `Sites`; `save` or `load` is the folder of the initial weights; `pack` or `batches` that of the
    uploaded batches, which are kept or taken; `steps` and `enough` are those of `Limit`, for steps of the kind `kind`.

    With `noise`, the number of a draw from 1 on, the weights that are loaded and what modules give are moved by one
    unit in the last place (`Noise`), or by the roundoff of the formats in `roundoffs` (by kind of layer, `roundoff`);
    with `faults` the run makes the mistakes of `Faults`. `states_out` or `states_in` is the folder of the states of
    `States`, and `states_every` the steps from one to the next. With `invariants`, the rules of `record.invariants`
    watch the run. `operators` is a `Wanted`, as JSON has it, for a run whose operators are recorded.
    `on_cpu` are operators of the NPU that the CPU computes (`on_cpu`); None for a run that is not to be looked into.
    Nothing that a `discarded` run writes is kept.
    """

    out: str
    side: str = ""
    views: Mapping[str, str] = dataclasses.field(default_factory=dict)
    roots: Sequence[str] = ()
    lines: str = ""
    save: str = ""
    load: str = ""
    noise: int = 0
    pack: str = ""
    batches: str = ""
    roundoffs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    faults: bool = False
    states_out: str = ""
    states_in: str = ""
    states_every: int = 1
    seed: int = 0
    steps: int | None = None
    operators: Mapping[str, Any] | None = None
    invariants: bool = False
    on_cpu: Sequence[str] | None = None
    kind: str = ""
    enough: tuple[int, float] | None = None
    discarded: bool = False

    def to_variable(self) -> str:
        """The value of TORCHPORT_RECORD for a process that is to be recorded so."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_variable(cls, text: str) -> Options:
        """The inverse of `to_variable`."""
        value = json.loads(text)
        value["enough"] = tuple(value["enough"]) if value["enough"] else None
        return cls(**value)


def start_recording() -> bool:
    """Record this process as TORCHPORT_RECORD says, from now to its end; whether it stays off the NPU.

    Doing so again does nothing: `torchport vnpu enable` and sitecustomize may both lead here.
    """
    global _session
    options = Options.from_variable(os.environ[VARIABLE])
    if _session is None:
        _session = Session(options)
        _session.start()
    return options.side in (REFERENCE, CUDA)


class Session:
    """The recording of one process."""

    def __init__(self, options: Options) -> None:
        self._options = options
        wanted = options.operators or {}
        self._journal = Journal(Path(options.out), drops=wanted.get("on_full") == "drop")
        self._process = os.getpid()
        self._caught: BaseException | None = None
        lines = json.loads(Path(options.lines).read_bytes()) if options.lines else {}
        self._sites = Sites(options.views.values() or options.roots or [os.getcwd()], lines)
        self._draws: Any = None
        self._recorder = Recorder(
            self._journal,
            self._sites,
            Limit(Path(options.out), options.steps, options.enough, self._stop),
            options.seed,
            self._prepare,
            self._equal if options.save or options.load else None,
            options.kind,
            spoil=options.faults,
            name_device=_find_name_device(options.side),
        )

    def start(self) -> None:
        """Hook into what this process will import, and into its end."""
        options = self._options
        stacks = Path(options.out, recording.PROCESSES, str(self._process), recording.STACKS)
        stacks.parent.mkdir(parents=True, exist_ok=True)
        # Open for the whole run: the signal handler writes through the descriptor.
        self._stacks = open(stacks, "w", encoding="utf-8")  # noqa: SIM115
        faulthandler.register(signal.SIGUSR1, file=self._stacks, all_threads=True)
        self._journal.write_event("process", **process_fields())
        if options.side == REFERENCE:
            from torchport.record import reference

            reference.hide_npu()
        redirect_editable(options.views)
        if options.views:
            from torchport.record.writes import guard_writes

            for folder, view in options.views.items():
                guard_writes(Path(view), Path(folder), Path(options.out, recording.OUTSIDE))
        self._recorder.install()
        if options.side != CUDA:
            standins.install()  # both runs of a port import apex and the like; a GPU has the libraries themselves
        if options.side in (REFERENCE, PORT):
            collector.spare_modules()
        sys.exit = disguise(self._leave(sys.exit), sys.exit)
        atexit.register(self._finish)  # first registered, so it runs after the script's own exit handlers

    def _prepare(self, torch: Any, patches: Patches) -> None:
        from torchport.record.draws import Draws

        if self._options.side == REFERENCE:
            from torchport.record import reference

            patches.on_undo(reference.apply_reference_patches(torch).undo)
        elif self._options.side == PORT:
            from torchport.record import port_side

            patches.on_undo(port_side.apply_port_patches(torch, self._note).undo)
        if self._options.side in (REFERENCE, CUDA):
            from torchport.record import gelu

            gelu.replace_gelu_kernels(torch, "CPU" if self._options.side == REFERENCE else "CUDA", patches, self._note)
        self._recorder.parts += self._parts(torch, patches)
        if self._options.side:
            drawn = self._drawn if self._options.side in (PORT, NPU) else None
            self._draws = Draws(torch, self._options.seed, self._sites.find_calling_line, self._unmatched, drawn)
            self._draws.install(patches)
            self._recorder.parts.append(self._draws)
        if self._options.noise:
            Noise(torch, self._options.roundoffs, self._options.noise).install(patches)
            self._journal.write_event("device", settings=dict(self._options.roundoffs))
        if self._options.on_cpu is not None:
            from torchport.record.on_cpu import OnCpu

            elsewhere = OnCpu(torch, self._options.on_cpu, "npu", self._seen)
            elsewhere.install()
            self._recorder.parts.append(elsewhere)
        if self._options.invariants:
            from torchport.record.invariants import make_rules

            recorder = self._recorder
            recorder.rules = make_rules(
                torch,
                self._journal.write_event,
                patches,
                lambda: self._sites.find_user_line(4),
                lambda parameter: recorder.names.find_name(parameter),
            )
            self._recorder.parts += self._recorder.rules
        self._recorder.parts.append(Surroundings(torch, self._journal.write_event))
        if used_devices.VARIABLE in os.environ:
            from torchport.record.steps_on_devices import StepsOnDevices

            self._recorder.parts.append(StepsOnDevices())
        self._journal.write_event("environment", **snapshot.collect_environment(torch))
        # After torch_npu's own handler is registered, so before it ends the device.
        atexit.register(self._recorder.finish)

    def _parts(self, torch: Any, patches: Patches) -> list[Part]:
        """What measures, between what does something wrong and what takes that back; then what changes the state."""
        from torchport.record.quantities import Quantities
        from torchport.record.uploads import Uploads

        options, recorder = self._options, self._recorder
        batches = self._batches(torch)
        uploads = Uploads(torch, self._journal.write_event, recorder.readings, self._sites.find_user_line, batches)
        uploads.install(patches)
        quantities = Quantities(
            torch,
            self._journal.write_event,
            recorder.readings,
            recorder.names,
            lambda: recorder.optimizers,
            _find_name_device(options.side),
        )
        parts: list[Part] = [uploads, batches, quantities]
        if options.faults and options.steps is not None:
            faults = Faults(
                torch,
                self._journal,
                lambda: self._sites.find_user_line(2),
                options.steps,
                options.kind,
                quantities.begin_again,
            )
            faults.install(patches)
            parts = [faults.before, *parts, faults.after]
        if options.states_out or options.states_in:
            states = States(
                torch,
                Path(options.states_out or options.states_in),
                recorder.get_process_key,
                self._journal,
                recorder.names.list_modules,
                load=not options.states_out,
                every=options.states_every,
                most_bytes=MOST_KEPT if options.states_every > 1 else MOST_BYTES,
                world=int(os.environ.get("WORLD_SIZE") or 1),
                restored=quantities.begin_again,
            )
            states.install(patches)
            parts.append(states)
        if options.side == CUDA:
            parts.append(Tf32(torch, self._note))
        if options.side in (PORT, NPU):
            parts.append(Device(torch, self._journal))
            parts.append(FloatStatus(torch, self._journal.write_event))
        if options.operators is not None:
            parts.append(self._operators(torch, options.operators))
        return parts

    def _operators(self, torch: Any, wanted: Mapping[str, Any]) -> Part:
        from torchport.record.operators import part
        from torchport.record.operators.wanted import Wanted

        made = part.make_operators_part(
            torch,
            Wanted(**wanted),
            Path(self._options.out),
            self._journal,
            self._sites,
            self._recorder.get_process_rank,
            {
                "side": self._options.side,
                # What is not the script's own on this side: judges of single operators have to know.
                "changed": ["gelu, as the NPU computes it"] if self._options.side in (REFERENCE, CUDA) else [],
            },
        )
        made.install()
        return made

    def _batches(self, torch: Any) -> Batches:
        from torchport.record.pack import Batches, Keep, Take

        options, key = self._options, self._recorder.get_process_key
        if options.pack:
            return Keep(torch, Path(options.pack), key, self._note)
        return Take(torch, Path(options.batches), key, self._note) if options.batches else Batches()

    def _note(self, text: str) -> None:
        self._journal.write_event("note", text=text)

    def _equal(self, torch: Any, key: Any) -> EqualStart:
        options = self._options
        folder = Path(options.save or options.load)
        return EqualStart(
            torch,
            folder,
            key,
            self._journal,
            load=not options.save,
            generator=False,
            noise=options.noise,
            spoil=options.faults,
            find_name=self._recorder.names.find_name,
        )

    def _unmatched(self, operator: str, where: str) -> None:
        self._journal.write_event(
            "random", detail=f"{operator} at {where} draws numbers that the other run cannot repeat"
        )

    def _drawn(self, error: BaseException | None, **measured: Any) -> None:
        self._journal.write_event("drawn", **measured, error="" if error is None else format_exception_line(error))

    def _seen(self, operators: Mapping[str, int], refused: Sequence[str]) -> None:
        self._journal.write_event("seen", operators=operators, refused=refused)

    def _stop(self, why: str, steps: int) -> None:
        self._journal.write_event("stop", why=why, steps=steps)

    def _leave(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`sys.exit` that keeps what is caught where it is called to fail: hydra and others print an exception so."""

        def exit_(status: Any = None, /) -> Any:
            if status not in (None, 0):
                self._caught = sys.exc_info()[1]
            original(status)

        return exit_

    def _finish(self) -> None:
        if os.getpid() != self._process:
            return
        from torchport import vnpu

        if self._options.side == REFERENCE:
            from torchport.record import reference

            if touched := reference.describe_npu_use():
                self._journal.write_event("npu", touched=touched)
        # Set by the interpreter for an exception that nobody caught.
        error = getattr(sys, "last_value", None) or self._caught
        if isinstance(error, BaseException) and not isinstance(error, SystemExit):
            self._journal.write_event("error", **describe_failure(error, self._sites))
        self._journal.write_event("modules", files=list_user_source_files())
        self._journal.write_event("end", launches=vnpu.launches(), elapsed=self._journal.get_elapsed_seconds())
        if self._options.discarded:
            collector.spare_all()


def _find_name_device(side: str) -> Callable[[Any], str]:
    """In an original the function that knows where it has moved a parameter; else nothing of the reference is
    imported."""
    if side != REFERENCE:
        return name_own_device
    from torchport.record.reference.places import name_device

    return name_device


def describe_failure(error: BaseException, sites: Sites) -> dict[str, Any]:
    """The text of an exception, and the user's line that it came through, in the file of this run; `ours` where
    torchport itself raised it."""
    if isinstance(error, SyntaxError) and error.filename:
        text = traceback.format_exception_only(error)[-1].strip()
        return {"error": text, "path": error.filename, "line": error.lineno or 0, "ours": False}
    frames = traceback.extract_tb(error.__traceback__)
    recorder = os.path.join(_OURS, "record") + os.sep
    own = [frame for frame in frames if sites.is_users(frame.filename)]
    return {
        "error": format_exception_line(error),
        "path": os.path.abspath(own[-1].filename) if own else "",
        "line": (own[-1].lineno or 0) if own else 0,
        # A function that our patch only calls is torch's, and may have no Python frame of its own. An error of
        # torch.distributed is said in the name of NCCL.
        "ours": bool(frames)
        and frames[-1].filename.startswith(recorder)
        and "original(" not in (frames[-1].line or "")
        and "DistError" not in (kind.__name__ for kind in type(error).__mro__),
    }


def format_exception_line(error: BaseException) -> str:
    """The text of an exception in a line: of those of torch_npu the first sentence and the last, which is CANN's."""
    lines = [_STAMP.sub("", line) for line in "".join(traceback.format_exception_only(error)).strip().splitlines()]
    return lines[0] if len(lines) == 1 else f"{lines[0]} ... {lines[-1]}"


def list_user_source_files() -> list[str]:
    """Source files of modules that are neither Python's own nor installed nor ours."""
    standard = str(Path(os.__file__).parent) + os.sep
    found = set()
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.endswith(".py"):
            path = os.path.abspath(path)
            if (
                not path.startswith((_OURS + os.sep, standard))
                and os.path.isfile(path)
                and "site-packages" not in path
                and "dist-packages" not in path
            ):
                found.add(path)
    return sorted(found)


class _Instead:
    """Finds the package `name` in `folder`, and nothing else there: links to other packages stand beside it."""

    def __init__(self, name: str, folder: str) -> None:
        self._name, self._folder = name, folder

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """Called by the import system for each module that is not loaded yet."""
        return PathFinder.find_spec(fullname, [self._folder]) if fullname == self._name else None


def redirect_editable(views: Mapping[str, str]) -> None:
    """Let packages that are installed in place from a folder of the user's be found in what stands for it.

    `pip install -e .` leaves paths in .pth files, which are in `sys.path` by now, or finders with tables of paths. Of
    an installed package (`port -m package.train`) the folder that is searched for it is no folder of the user's: it is
    found before.
    """

    def moved(path: str) -> str:
        # A checkout of torchport is somebody's folder too, and a view lies in the user's folder.
        if _OURS.startswith(path) or any(path.startswith(place) for place in views.values()):
            return path
        for folder, place in views.items():
            if path == folder or path.startswith(folder + os.sep):
                return place + path[len(folder) :]
        return path

    def all_moved(paths: Sequence[str]) -> list[str]:
        return [moved(path) if isinstance(path, str) else path for path in paths]

    sys.path[:] = all_moved(sys.path)
    for folder, place in views.items():
        packages, name = os.path.split(folder)
        if os.path.basename(packages) in INSTALLED and packages in map(os.path.realpath, sys.path):
            sys.meta_path.insert(0, _Instead(name, os.path.dirname(place)))
    for finder in sys.meta_path:
        module = getattr(finder, "__module__", "") or ""
        if module.startswith("__editable__"):  # setuptools' own name for them
            table = getattr(importlib.import_module(module), "MAPPING", {})
            for name, path in table.items():
                table[name] = moved(path)
