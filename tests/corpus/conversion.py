"""Convert a package of the corpus, check each file, and count.

The checks do not use the code that they check: bytes are compared piece by piece, the second conversion starts from
the files that the first has written.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from unsaid import silent

from torchport.convert.project import list_convertible_files
from torchport.convert.workers import Converted, convert_file, convert_files
from torchport.rules import Style
from torchport.source.definitions import Definitions, collect_definitions, find_provided_modules
from torchport.source.kinds import Kind, kind_of
from torchport.source.settings import Settings

# What makes a token one of CUDA: the names of the platform, its communication library, its other libraries.
CUDA = re.compile(rb"cuda|nccl|cudnn|nvtx|nvidia|(?<![a-z])cu\d\d", re.IGNORECASE)
_WORD = re.compile(rb"\w")
_SEPARATE = ("TP903", "TP904")  # a bug of ours, a file given up


@dataclasses.dataclass
class Counts:
    """What happened to one package.

    `edits` are places in files where bytes were replaced or inserted, all of them; `cuda_edits` those whose replaced
    bytes, extended to whole words (letters, digits, underscores), say CUDA. An insertion has no bytes of its own, so
    it counts as one that does not.
    """

    files: int = 0
    python: int = 0
    changed: int = 0
    edits: int = 0
    cuda_edits: int = 0
    rules: Counter[str] = dataclasses.field(default_factory=Counter)
    wrong: list[str] = dataclasses.field(default_factory=list)

    def flat(self) -> dict[str, int]:
        """All counts by name, as they are stored."""
        numbers = {name: getattr(self, name) for name in ("files", "python", "changed", "edits", "cuda_edits")}
        return numbers | {name: self.rules[name] for name in sorted(self.rules)}


def convert(tree: Path, scratch: Path) -> Counts:
    """Convert all files below `tree`; `scratch` is an empty folder for those that change."""
    counts = Counts()
    files = list_convertible_files(tree, Settings())
    changed = []
    for one in convert_files(files, Style.NPU):
        counts.files += 1
        counts.python += (kind_of(one.name) or Kind.PYTHON) is Kind.PYTHON
        counts.changed += one.changed
        counts.wrong += [f"{one.name}: {problem}" for problem in _problems(one)]
        counts.wrong += [f"{word} is left and nothing says so" for word in silent(one)]
        for finding in one.findings:
            counts.rules[f"{finding.code} {'applied' if finding.fix and one.changed else 'reported'}"] += 1
        for edit in one.edits:
            counts.edits += 1
            counts.cuda_edits += CUDA.search(_whole_words(one.data, edit.start, edit.end)) is not None
        if one.changed:
            (scratch / one.name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / one.name).write_bytes(one.output)
            changed.append(one.name)
    again = set(changed)
    python = [(scratch / name if name in again else path, name) for path, name in files if name.endswith(".py")]
    project = collect_definitions(
        (path.read_bytes() for path, _ in python), find_provided_modules((name for _, name in python), tree.name)
    )
    with ProcessPoolExecutor(2) as pool:
        for problems in pool.map(_again, ((scratch / name, name, project) for name in changed), chunksize=8):
            counts.wrong += problems
    return counts


def _again(file: tuple[Path, str, Definitions]) -> list[str]:
    path, name, project = file
    changes = convert_file(path, name, Style.NPU, project).changed
    return [f"{name}: converting the converted package changes it again"] if changes else []


def _whole_words(data: bytes, start: int, end: int) -> bytes:
    if start == end:
        return b""
    while start > 0 and _WORD.match(data, start - 1):
        start -= 1
    while _WORD.match(data, end):
        end += 1
    return data[start:end]


def _problems(one: Converted) -> list[str]:
    found = [f"{finding.code} {finding.message}" for finding in one.findings if finding.code in _SEPARATE]
    if not one.changed:
        return found
    # Not about the name: the import of a file that is started (TP001), cures of what stops without one, and words of
    # frameworks for several GPUs (TP607).
    applied = {finding.code for finding in one.findings if finding.fix}
    if not (CUDA.search(one.data) or applied <= {"TP001", "TP216", "TP217", "TP607", "TP720"}):
        found.append("it does not say CUDA, and was changed")
    position, produced = 0, 0
    for edit in sorted(one.edits, key=lambda edit: (edit.start, edit.end)):
        kept = one.data[position : edit.start]
        if one.output[produced : produced + len(kept)] != kept:
            found.append(f"the bytes before {edit.start} differ")
            break
        produced += len(kept) + len(edit.replacement)
        position = edit.end
    else:
        if one.output[produced:] != one.data[position:]:
            found.append("the bytes after the last edit differ")
    if (kind_of(one.name) or Kind.PYTHON) is Kind.PYTHON and _compiles(one.data) and not _compiles(one.output):
        found.append("it compiled before, and does not now")
    return found


def _compiles(data: bytes) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(data, "corpus", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
    return True
