"""Which names that say CUDA a project defines itself, found in bytes without parsing.

`use_cuda` is harmless where the project has an option, a variable, a parameter or a key of that name: what it means is
then the project's own affair. Where nothing defines it, somebody else does.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping

# What says CUDA in a name; ConvMLP and renvml do not.
CUDA = re.compile(r"cuda|nccl|nvidia|cudnn|cublas|nvcc|nvtx|(?<![a-z])nvml", re.IGNORECASE)
PLAIN = ("cuda", "nccl", "nvidia", "cudnn", "cublas", "nvcc", "nvtx", "nvml")  # one of them is in all that says it
_PLAIN = tuple(word.encode() for word in PLAIN)
_ANY = re.compile(b"|".join(_PLAIN))
_WORDS = b"(?i:" + _ANY.pattern + b")"
_NAME = rb"\w{0,60}?" + _WORDS + rb"\w{0,60}"
_DEFINES = re.compile(
    rb"(?<![\w.])(?:(?:def|class)[ \t]+(?P<one>" + _NAME + rb")"  # def use_cuda, class CudaThing
    # self.use_cuda = ..., use_cuda: bool, use_cuda = ...; f(use_cuda=True) is no definition
    rb"|(?:\w{1,60}\.){0,3}(?P<two>" + _NAME + rb")(?=[ \t]*:[^=\n]{0,80}=(?!=)|[ \t]+=(?!=)|[ \t]*:[ \t]*[\w\[{'\"])"
    rb"|as[ \t]+(?P<three>" + _NAME + rb"))"
    rb"|['\"](?P<four>" + _NAME + rb")['\"][ \t]*:"  # {"use_cuda": True}
    rb"|(?:setattr\([^,\n]{1,60},|Field\(|field\()[ \t]*f?['\"](?P<five>" + _NAME + rb")['\"]"
    rb"|--(?P<option>[\w-]{0,60}?" + _WORDS + rb"[\w-]{0,60})"  # --use-cuda
    rb"|(?P<key>^[ \t]*(?:-[ \t]+)?['\"]?" + _NAME + rb"['\"]?(?=[ \t]*:))",
    re.MULTILINE,
)
_SIGNATURE = re.compile(rb"\bdef[ \t]+\w+[ \t]*\(([^()]{0,4000}(?:\([^()]{0,500}\)[^()]{0,2000}){0,20})\)")
_NAMED = re.compile(rb"(?:^|[(,*\s])(" + _NAME + rb")[ \t]*(?=[,:=)\s]|$)", re.MULTILINE)
_TUPLE = re.compile(rb"namedtuple\(\s*['\"]\w+['\"]\s*,\s*([^)]{0,2000})\)|dict\(([^()]{0,4000})\)")
_GIVEN = re.compile(rb"(?<![\w.])(" + _NAME + rb")=(?!=)")  # Options(use_cuda=True)
_LONGEST = 5_000
_NAME_AT_MOST = 80  # characters


def says_cuda(text: str) -> bool:
    """Whether a name or another text says CUDA."""
    return (_name_says if len(text) <= _NAME_AT_MOST else _says)(text)


def _says(text: str) -> bool:
    small = text.lower()
    return any(word in small for word in PLAIN) and CUDA.search(text) is not None


_name_says = functools.lru_cache(65536)(_says)  # names come again and again


def find_defined_names(sources: Iterable[tuple[str, bytes]]) -> Mapping[str, str]:
    """For each such name what is known of it, "defined in file:line" or "given as an argument in file:line", of the
    first such place; `sources` are (name, content).
    """
    found: dict[str, str] = {}
    given: dict[str, str] = {}
    for path, data in sources:
        small = data.lower()
        if not any(word in small for word in _PLAIN):
            continue
        for start, end in _lines(data, small):
            for match in _DEFINES.finditer(data, start, end):
                name = next(part for part in match.groups() if part is not None)
                _add(found, "defined in", name.strip(b" \t'\"-").replace(b"-", b"_"), path, data, start)
            for match in _GIVEN.finditer(data, start, end):
                _add(given, "given as an argument in", match[1], path, data, start)
        for pattern in (_SIGNATURE, _TUPLE):
            for match in pattern.finditer(data):
                text = next(part for part in match.groups() if part is not None)
                if not _ANY.search(text.lower()):
                    continue
                for inner in _NAMED.finditer(re.sub(rb"['\"]", b" ", text)):
                    _add(found, "defined in", inner[1], path, data, match.start())
    return {**given, **found}


def _lines(data: bytes, small: bytes) -> Iterator[tuple[int, int]]:
    """Where the lines begin and end that say CUDA; without those that no person has written."""
    end = -1
    for match in _ANY.finditer(small):
        if match.start() < end:
            continue
        start, end = data.rfind(b"\n", 0, match.start()) + 1, data.find(b"\n", match.end())
        end = len(data) if end < 0 else end
        if end - start <= _LONGEST:
            yield start, end


def _add(found: dict[str, str], how: str, name: bytes, path: str, data: bytes, start: int) -> None:
    word = name.decode("utf-8", "replace")
    if word not in found:
        line = data.count(b"\n", 0, start) + 1
        found[word] = f"{how} {path}:{line}"
