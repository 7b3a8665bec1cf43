"""Words behind the script that are nearly an option of torchport's: a slip must not become the script's word."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from torchport.errors import TorchportError
from torchport.launch.defined import imported_beside
from torchport.launch.modules import module_file
from torchport.launch.notebook import as_script
from torchport.launch.words import Split

_LONG = 8  # letters of a name in which two slips are likelier than another name
_SHORT = 4  # letters of a name in which a letter more, less or another makes a word of its own
_FILES = 200  # of the project that are looked into for a word


def refuse_misspelt(name: str, parser: argparse.ArgumentParser, words: Sequence[str], parts: Split) -> None:
    """Raise TorchportError where a word behind the script is nearly an option of `parser`, with both readings.

    `name` is the command's, `parts` what `split_words` made of `words`. A word that stands in the script's own text, or
    in that of the project's modules that it imports, is the script's; so are all words behind `--`.
    """
    end = words.index("--") if "--" in words else len(words)
    passed = parts.passed[: len(parts.passed) - len(words[end + 1 :])]
    options = [option for action in parser._actions for option in action.option_strings if option.startswith("--")]
    suspects = {word: meant for word in passed if (meant := find_near_option(word, options))}
    if not suspects:
        return
    text = _read_text(parts)
    if text is None:
        return  # there is no such script, which starting it says
    for word, meant in suspects.items():
        written, sign, value = word.partition("=")
        if _stands_in(written, text):
            continue
        at = len(words[:end]) - 1 - list(reversed(words[:end])).index(word)
        ours = ["torchport", name, *words[:at], meant + sign + value, *words[at + 1 :]]
        theirs = ["torchport", name, *parts.own, "--", *parts.passed]
        raise TorchportError(
            f"{written} is no option of torchport {name}, and {parts.module or parts.script} does not name it",
            hint=f"If {meant} is meant: {shlex.join(ours)}\n  For the script: {shlex.join(theirs)}",
        )


def find_near_option(word: str, options: Iterable[str]) -> str:
    """The option that `word` (`--stpes`, `--keep_last=3`) is a misspelling of; empty for none, and for an option
    itself."""
    given = word.partition("=")[0]
    if not re.match(r"--?[A-Za-z]{2}", given) or given in options:
        return ""
    letters = _letters(given)
    near = [(count_slips(letters, _letters(option)), option) for option in options]
    close = [(slips, option) for slips, option in near if slips <= _allowed(letters, _letters(option))]
    return min(close)[1] if close else ""


def _letters(option: str) -> str:
    return option.lstrip("-").replace("_", "-").lower()


def _allowed(given: str, option: str) -> int:
    if sorted(given) == sorted(option):
        return 1 if len(option) < _LONG else 2  # letters in another order are no other word
    if len(option) <= _SHORT:
        return 0
    return 2 if len(option) >= _LONG and given[0] == option[0] else 1  # --inference is no slip of --reference


def count_slips(one: str, other: str) -> int:
    """How many letters are missing, too many, wrong, or in the wrong order with their neighbour (optimal string
    alignment)."""
    rows = [list(range(len(other) + 1))]
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, wanted in enumerate(other, 1):
            best = min(row[j - 1] + 1, rows[-1][j] + 1, rows[-1][j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                best = min(best, rows[-2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


def _read_text(parts: Split) -> str | None:
    """The text of the script and of the modules of its project that it imports; None where there is no script."""
    if parts.script == "-":
        return ""
    try:
        path = Path(parts.script or "") if parts.module is None else module_file(parts.module, Path(), os.environ)
        waiting, folders = [path], [path.parent] if parts.module is None else [path.parent, Path()]
        seen: dict[Path, str] = {}
        while waiting and len(seen) < _FILES:
            one = waiting.pop(0)
            if one.resolve() in seen:
                continue
            data = one.read_bytes()
            source = as_script(data) if one.suffix == ".ipynb" else data
            seen[one.resolve()] = source.decode("utf-8", "replace")
            waiting += [file for folder in {*folders, one.parent} for file in imported_beside(source, folder)]
    except (OSError, TorchportError):
        return None
    return "\n".join(seen.values())


def _stands_in(word: str, text: str) -> bool:
    """Whether a name stands there as an option or as what an option is stored in."""
    name = "[-_]".join(map(re.escape, re.split("[-_]", word.lstrip("-"))))
    return re.search(rf"(?<![\w-])(?:--?)?{name}(?![\w-])", text) is not None
