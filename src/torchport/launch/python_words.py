"""The interpreter's own command line: `python -u -W ignore train.py --lr 1`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from torchport.errors import TorchportError

_WITH_VALUE = "WX"
_ISOLATING = "IES"  # ignore PYTHONPATH, or start without `site`: torchport could not take part


@dataclasses.dataclass(frozen=True, slots=True)
class PythonWords:
    """`options` are the interpreter's, then at most one of `script` (a path or `-`) and `module`.

    With neither (`-c TEXT`, `--version`, nothing) `arguments` has all that is left, the option included.
    """

    options: tuple[str, ...]
    script: str | None
    module: str | None
    arguments: tuple[str, ...]


def read_python(words: Sequence[str]) -> PythonWords:
    """Read the words behind `python`. Raises TorchportError for -I, -E and -S, under which no port can be run."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "--"):
        word = words[at]
        if word.startswith("--"):
            if word != "--check-hash-based-pycs":
                return PythonWords(tuple(words[:at]), None, None, tuple(words[at:]))
            at += 2
            continue
        end = at + 1
        for index, letter in enumerate(word[1:], 1):
            rest = word[index + 1 :]
            if letter in _ISOLATING:
                raise TorchportError(
                    f"python -{letter} shuts torchport out: the run is redirected and recorded through PYTHONPATH",
                    hint=f"Leave -{letter} out.",
                )
            if letter == "c":
                return PythonWords(tuple(words[:at]), None, None, tuple(words[at:]))
            if letter == "m":
                options = (*words[:at], *([word[:index]] if index > 1 else []))
                following = [rest, *words[at + 1 :]] if rest else list(words[at + 1 :])
                if not following:
                    raise TorchportError("python -m is given no module")
                return PythonWords(tuple(options), None, following[0], tuple(following[1:]))
            if letter in _WITH_VALUE:
                end += not rest
                break
        at = end
    options = tuple(words[:at])
    rest_words = words[at + 1 :] if words[at : at + 1] == ["--"] else words[at:]
    if not rest_words:
        raise TorchportError("python is given no script", hint="For example: -- python train.py")
    return PythonWords(options, rest_words[0], None, tuple(rest_words[1:]))
