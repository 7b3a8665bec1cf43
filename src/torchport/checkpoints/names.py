"""Which part of a checkpoint is the model's weights, and what wrappers have put in front of their names."""

from __future__ import annotations

import dataclasses
import difflib
import json
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from torchport.checkpoints.contents import Contents, Stored
from torchport.errors import TorchportError

# Keys that trainers give to the weights.
WEIGHTS = ("state_dict", "model_state_dict", "model", "module", "net", "network", "weights", "params")
# Parts with one of these words hold what an optimizer or a schedule needs.
OTHERS = ("optim", "sched", "scaler", "rng", "loader", "callback", "loops")
AVERAGES = ("ema", "averag", "swa", "shadow", "teacher")
# What wrappers put in front of every name: DistributedDataParallel and DataParallel, torch.compile, trainers.
PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "ema_model.", "ema.", "averaged_model.", "shadow.")
# Segments that nobody calls a layer of his own: removed wherever they are, where every name stays another.
SEGMENTS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
COUNTERS = ("n_averaged", "num_updates", "decay", "initted", "step")  # beside the weights of an average
NEAREST = 3


def find_weights(contents: Contents, part: str | None = None) -> tuple[str, Mapping[str, Stored]]:
    """The way to the model's weights, and the weights. `part` is the user's choice.

    Raises TorchportError for a pickled module, for none and for several of which none is the usual one.
    """
    known = {way: tensors for way, tensors in contents.parts.items() if tensors}
    if part is not None:
        if part in known:
            return part, known[part]
        near = difflib.get_close_matches(part, known, 1)
        raise TorchportError(
            f"{contents.path} has no part {part!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
            hint=f"Its parts are {', '.join(map(repr, known)) or 'none'}.",
        )
    likely = {way: tensors for way, tensors in known.items() if not any(word in way.lower() for word in OTHERS)}
    named = [way for way in WEIGHTS if way in likely]
    if len(named) == 1:
        return named[0], likely[named[0]]
    if not named and "" in likely:
        return "", likely[""]
    plain = {way: tensors for way, tensors in likely.items() if not _average(way)}
    chosen = {way: likely[way] for way in named} or plain or likely
    if len(chosen) == 1:
        return next(iter(chosen.items()))
    if chosen:
        raise TorchportError(
            f"{contents.path} has {len(chosen)} parts that may be the model's weights: "
            + ", ".join(f"{way!r} ({len(tensors)} tensors)" for way, tensors in list(chosen.items())[:8]),
            hint="Choose with --part.",
        )
    if contents.objects:
        raise _pickled(contents)
    raise TorchportError(f"{contents.path} holds no weights", hint="`torchport checkpoint show` lists what is in it.")


def _average(way: str) -> bool:
    return any(word in way.lower() for word in AVERAGES)


def _pickled(contents: Contents) -> TorchportError:
    way, name = next(iter(contents.objects.items()))
    path, target = contents.path, Path(f"{contents.path.stem}.state_dict.pth")
    keys = "".join(f"[{json.dumps(key)}]" for key in way.split(".") if key)
    program = (
        f'import torch; torch.save(torch.load({json.dumps(str(path))}, map_location="cpu", weights_only=False){keys}'
        f".state_dict(), {json.dumps(str(target))})"
    )
    return TorchportError(
        f"{path} holds a pickled object of the class {name}{f' in {way!r}' if way else ''} in place of weights: to "
        "read it is to execute what the file says, which torchport does not",
        hint="If you trust the file, convert it where its class can be imported: python -c " + shlex.quote(program),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Stripped:
    """Names as a model has them, each with the name in the file; `removed` says what was taken away."""

    names: Mapping[str, str]
    removed: tuple[str, ...]


def strip_prefixes(names: Iterable[str], prefix: str | None = None) -> Stripped:
    """Take away what wrappers have put in front of every name; of `prefix`, where the user gives one, that alone.

    What not every name has stays. Raises TorchportError for a given prefix that not every name has.
    """
    pairs = {name: name for name in names}
    if prefix is not None:
        without = [name for name in pairs if not name.startswith(prefix)]
        if without:
            raise TorchportError(
                f"{len(without)} of {len(pairs)} names do not begin with {prefix!r}: {', '.join(without[:NEAREST])}",
                hint="Nothing was stripped. `torchport checkpoint show` lists the names.",
            )
        return Stripped(_without(pairs, prefix), (prefix,) if prefix else ())
    removed: list[str] = []
    while True:
        for found in PREFIXES:
            counted = {new: old for new, old in pairs.items() if new not in COUNTERS}
            if counted and all(new.startswith(found) for new in counted):
                pairs = _without(counted, found)
                removed.append(found)
                break
        else:
            break
    for segment in SEGMENTS:
        inner = {new.replace(segment, ""): old for new, old in pairs.items()}
        if len(inner) == len(pairs) and inner != pairs:
            pairs = inner
            removed.append(segment)
    return Stripped(pairs, tuple(removed))


def _without(pairs: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {new.removeprefix(prefix): old for new, old in pairs.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class Match:
    """How names of a checkpoint fit those of a model: `names` from the model's to the file's, and what is left."""

    names: Mapping[str, str]
    removed: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether each has its other."""
        return not self.missing and not self.unexpected


def match_names(wanted: Iterable[str], names: Iterable[str]) -> Match:
    """Fit the names of a checkpoint to those that a model wants.

    Stripped only where that fits altogether; else as they stand, or stripped of what every name has, whichever leaves
    less. A prefix that only some names have is never taken away.
    """
    wanted, names = list(wanted), list(names)
    plain = Stripped({name: name for name in names}, ())
    stages = [plain]
    for prefix in ("", *PREFIXES):  # a model may have a layer `model`: not everything that can go has to
        if prefix and all(name.startswith(prefix) for name in names if name not in COUNTERS):
            stages.append(strip_prefixes([name for name in names if name not in COUNTERS], prefix))
    stages.append(strip_prefixes(names))
    matches = [_fit(wanted, stage) for stage in stages]
    return min(matches, key=lambda found: len(found.missing) + len(found.unexpected))


def _fit(wanted: list[str], stage: Stripped) -> Match:
    missing = tuple(name for name in wanted if name not in stage.names)
    known = set(wanted)
    unexpected = tuple(name for name in stage.names if name not in known)
    fitting = {name: stage.names[name] for name in wanted if name in stage.names}
    return Match(fitting, stage.removed, missing, unexpected)


def find_nearest_name(name: str, names: Iterable[str]) -> str | None:
    """The name most like `name`: by its last segments first, which wrappers and renamed blocks leave as they are."""
    names = list(names)
    tail = name.split(".")
    for length in range(len(tail), min(1, len(tail) - 1), -1):
        ending = "." + ".".join(tail[-length:])
        if ends := [other for other in names if ("." + other).endswith(ending)]:
            return ends[0]
    close = difflib.get_close_matches(name, names[:5000], 1, 0.6)
    return close[0] if close else None
