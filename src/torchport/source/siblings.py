"""Names for CUDA that have a sibling for the NPU: `is_cuda` beside `is_npu`, `CudaPlatform` beside `NpuPlatform`,
`accelerator/cuda.py` beside `accelerator/npu.py`."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator

# A word of CUDA's, and the words that projects write in its place for an Ascend NPU.
_NPU = ("npu", "ascend", "ascend_npu")
_WORDS = {"cuda": _NPU, "gpu": _NPU, "nvidia": _NPU, "nccl": ("hccl",)}
# A word that begins with npu: "input" has none. And with other names of it, also in the middle of a name in mixed case.
NPU_NAME = r"(?i:(?<![A-Za-z])npu)"
NPU_WORD = rf"{NPU_NAME}|(?i:hccl|ascend(?!ing|ant|ed|s\b))|(?<=[a-z])(?:NPU|Npu)(?![a-z])"
_NPU_BYTES = re.compile(NPU_WORD.encode())
_WORD = re.compile("|".join(_WORDS), re.IGNORECASE)


def names_npu(data: bytes) -> bool:
    """Whether a source names the NPU."""
    # Far quicker than the pattern, which most files need not be searched for: nearly every file says "input".
    small = data.lower().replace(b"input", b"")
    return (b"npu" in small or b"hccl" in small or b"ascend" in small) and _NPU_BYTES.search(data) is not None


def names_device(name: str) -> bool:
    """Whether a name speaks of CUDA, or of the NPU that a sibling is for."""
    return _WORD.search(name) is not None or any(word in name.lower() for words in _WORDS.values() for word in words)


def list_siblings(name: str) -> Iterator[str]:
    """The names that a sibling of `name` for the NPU may have, in the case of `name`; nothing if it names no CUDA."""
    found = _WORD.search(name)
    if found is None:
        return
    for new in _WORDS[found[0].lower()]:
        yield _WORD.sub(functools.partial(_in_case_of, new), name)


def _in_case_of(new: str, found: re.Match[str]) -> str:
    word = found[0]
    new = "hccl" if word.lower() == "nccl" else new
    return new.upper() if word.isupper() else new.capitalize() if word[0].isupper() else new


def find_paired(names: Collection[str]) -> frozenset[str]:
    """The names that have a sibling for the NPU among `names`."""
    lower = {name.lower() for name in names}
    return frozenset(name for name in names if any(sibling.lower() in lower for sibling in list_siblings(name)))


def find_paired_files(paths: Iterable[str]) -> frozenset[str]:
    """The files, as names with forward slashes, that lie beside a file or in a folder beside a folder for the NPU."""
    files = set(paths)
    folders = {name.lower() for path in files for name in _folders(path)}
    lower = {path.lower() for path in files}
    found = set()
    for path in files:
        above, _, leaf = path.rpartition("/")
        if any(f"{above}/{sibling}".lstrip("/").lower() in lower for sibling in list_siblings(leaf)):
            found.add(path)
        for folder in _folders(path):
            outer, _, name = folder.rpartition("/")
            if any(f"{outer}/{sibling}".lstrip("/").lower() in folders for sibling in list_siblings(name)):
                found.add(path)
    return frozenset(found)


def _folders(path: str) -> Iterator[str]:
    """The folders on the way to a file."""
    parts = path.split("/")
    for count in range(1, len(parts)):
        yield "/".join(parts[:count])
