"""Which words of a command line are torchport's and which are the user's script's.

In front of the script all words are torchport's. Behind it, options that torchport knows stay torchport's, with their
values; every other word goes to the script, in its order; behind `--` all words are the script's. Without a script,
what stands behind `--` is a command line of the user's (`-- torchrun train.py`).
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from torchport.errors import TorchportError
from torchport.launch.defined import defined_options, imported_beside
from torchport.launch.modules import module_file
from torchport.launch.notebook import as_script

MODULE = "module"  # the `dest` of the option `-m MODULE`, which takes the place of SCRIPT
_NEGATIVE_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$")


@dataclasses.dataclass(frozen=True, slots=True)
class Split:
    """A command line taken apart: `own` is for torchport's parser, `passed` for the script.

    `script` and `module` are what runs, at most one of them; with neither, `passed` is a command line. `shared` has
    torchport's options that stood behind the script, as they were written, and `places` how many words of `passed` each
    stood behind: the script might know them too.
    """

    own: tuple[str, ...]
    passed: tuple[str, ...]
    script: str | None = None
    module: str | None = None
    shared: tuple[tuple[str, ...], ...] = ()
    places: tuple[int, ...] = ()


def split_words(parser: argparse.ArgumentParser, words: Sequence[str]) -> Split:
    """Take `words` apart by the options of `parser`.

    The first word that is neither an option nor an option's value is the script; an option with the dest "module"
    takes its place. Nothing is refused here: what is wrong with torchport's own words is for the parser to say.
    """
    end = words.index("--") if "--" in words else len(words)
    actions = {name: action for action in parser._actions for name in action.option_strings}
    own: list[str] = []
    passed: list[str] = []
    shared: list[tuple[str, ...]] = []
    places: list[int] = []
    script: str | None = None
    module: str | None = None
    at = 0
    while at < end:
        found = script is not None or module is not None
        action = _action(words[at], actions)
        if found and action is not None and action.dest == MODULE:
            action = None  # there is a script already, so this is its own -m
        if action is not None:
            taken = words[at : at + 1 + _values(action, words[at:end])]
            own += taken
            if found:
                shared.append(tuple(taken))
                places.append(len(passed))
            elif action.dest == MODULE:
                module = _value(taken)
            at += len(taken)
            continue
        if found:
            passed.append(words[at])
        else:
            own.append(words[at])
            if words[at] == "-" or not words[at].startswith("-"):
                script = words[at]
        at += 1
    return Split(tuple(own), (*passed, *words[end + 1 :]), script, module, tuple(shared), tuple(places))


def refuse_shared(name: str, parser: argparse.ArgumentParser, parts: Split) -> None:
    """Raise TorchportError where an option behind the script is torchport's and the script's, with both spellings.

    `name` is the command's. What the script defines is read from its source and from the modules beside it that it
    imports; where there is no source, nothing is known.
    """
    defined = _defined(parts) if parts.shared else frozenset()
    actions = {option: action for action in parser._actions for option in action.option_strings}
    for taken, place in zip(parts.shared, parts.places, strict=True):
        action = _action(taken[0], actions)
        names = action.option_strings if action is not None else ()
        word = taken[0]
        written = (each for each in names if word.partition("=")[0] == each or _is_joined(word, each))
        both = next((each for each in written if each in defined), None)
        if both is None:
            continue
        started = ["-m", parts.module] if parts.module is not None else [str(parts.script)]
        separator = ["--"] if any(_action(other, actions) for other in parts.passed) else []
        ours = ["torchport", name, *taken, *started, *separator, *parts.passed]
        theirs = ["torchport", name, *started, "--", *parts.passed[:place], *taken, *parts.passed[place:]]
        raise TorchportError(
            f"{both} is an option of torchport {name} and of {parts.module or parts.script}",
            hint=f"For torchport: {shlex.join(ours)}\n  For the script: {shlex.join(theirs)}",
        )


def _is_joined(word: str, name: str) -> bool:
    """Whether `word` is the short option `name` with its value, as `-oDIR`."""
    return not name.startswith("--") and not word.startswith("--") and word.startswith(name)


def _defined(parts: Split) -> frozenset[str]:
    try:
        path = Path(parts.script or "") if parts.module is None else module_file(parts.module, Path(), os.environ)
        data = path.read_bytes()
        source = as_script(data) if path.suffix == ".ipynb" else data
        folders = [path.parent] if parts.module is None else [path.parent, Path()]
        files = {file for folder in folders for file in imported_beside(source, folder)}
        texts = [source, *(file.read_bytes() for file in files)]
    except (OSError, TorchportError):
        return frozenset()  # starting it says what is wrong
    return frozenset().union(*map(defined_options, texts))


def _action(word: str, actions: dict[str, argparse.Action]) -> argparse.Action | None:
    """The option of torchport's that `word` gives: `--out`, `--out=DIR`, `-o`, `-oDIR`."""
    if word in actions:
        return actions[word]
    if word.startswith("--"):
        found = actions.get(word.partition("=")[0])
        return found if found is not None and found.nargs != 0 and "=" in word else None
    if word.startswith("-") and len(word) > 2:
        found = actions.get(word[:2])
        return found if found is not None and found.nargs != 0 else None
    return None


def _values(action: argparse.Action, words: Sequence[str]) -> int:
    """How many words behind `words[0]`, an option, are its values."""
    if words[0] not in action.option_strings or action.nargs == 0:
        return 0  # `--out=DIR` has its value
    if action.nargs is None or action.nargs == "?":
        limit = 1
    else:
        limit = action.nargs if isinstance(action.nargs, int) else len(words)
    count = 0
    while count < limit and count + 1 < len(words) and _is_value(words[count + 1]):
        count += 1
    return count


def _is_value(word: str) -> bool:
    return word == "-" or not word.startswith("-") or _NEGATIVE_NUMBER.match(word) is not None


def _value(taken: Sequence[str]) -> str | None:
    """The value in `-m MODULE`, `-mMODULE` or `--module=MODULE`; None where it is missing."""
    if len(taken) > 1:
        return taken[1]
    word = taken[0]
    return word.partition("=")[2] if word.startswith("--") else word[2:] or None
