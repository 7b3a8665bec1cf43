"""What still says CUDA after a conversion, and what that means: nothing is left unsaid."""

from __future__ import annotations

import ast
import bisect
import dataclasses
import enum
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping

from torchport.convert.inspection import parse_module
from torchport.findings import Finding, Severity
from torchport.rules.files import LONGEST_LINE, TextFile
from torchport.rules.files.unexplained_words import KINDS, find_own_names, prove_word
from torchport.rules.unexplained import find_mentions
from torchport.source.defined import CUDA, PLAIN, says_cuda
from torchport.source.definitions import Definitions
from torchport.source.embedded import find_programs
from torchport.source.kinds import Kind, is_comment, kind_of
from torchport.source.notebook import Notebook
from torchport.source.text import SourceError, SourceText


def _mention(around: int) -> re.Pattern[str]:
    """The word around a mention is limited: without limits this takes quadratic time on a line of a million dashes."""
    word = rf"[\w.-]{{0,{around}}}"
    says = f"(?:{CUDA.pattern})"
    return re.compile(rf"(?<![\w.-]){word}?{says}{word}|{says}{word}", re.IGNORECASE)


_MENTION, _MENTION_IN_DATA = _mention(300), _mention(60)


# A comment or a string of Python without its prefix. What is no string because it does not end is passed over: the
# file has its finding. This takes a hundredth of the time of `tokenize`.
_WRITTEN = re.compile(
    r"""#[^\r\n]*|\'{3}(?:[^\\']++|\\.|'(?!''))*+\'{3}|\"{3}(?:[^\\"]++|\\.|"(?!""))*+\"{3}"""
    r"""|'(?:[^\\'\r\n]++|\\(?:\r\n|.))*+'|"(?:[^\\"\r\n]++|\\(?:\r\n|.))*+\"""",
    re.DOTALL,
)


class Meaning(enum.StrEnum):
    """What a mention of CUDA that is left means for the port."""

    BLOCKER = "blocker"  # a finding says that it will not run
    DECISION = "decision"  # a finding asks a person
    KEPT = "kept"  # known, and harmless on an NPU
    NAME = "name"  # a name or word of the project's own: an option, a variable, a key
    PROSE = "prose"  # a comment, a docstring, a message


@dataclasses.dataclass(frozen=True, slots=True)
class Mention:
    """One word in the converted file; line and column count from 1.

    `proof` says of a name in Python code why it is the project's own.
    """

    line: int
    column: int
    word: str
    meaning: Meaning
    proof: str = ""


def find_residue(
    output: bytes, path: str, left: Iterable[Finding], project: Definitions | None = None
) -> tuple[Mention, ...]:
    """Every mention of CUDA in a converted file, of a line too long to be read the first; `left` are its findings."""
    try:
        text = SourceText(path, output)
    except SourceError:
        return ()  # the finding about the encoding says all there is to say
    said: dict[int, Meaning] = {}
    for finding in left:
        meaning = _MEANING[finding.severity]
        where = finding.location
        for line in range(where.line, where.end_line + 1) if where is not None else ():
            said[line] = min(meaning, said.get(line, meaning), key=list(Meaning).index)
    found = [
        (number, match.start(), match[0])
        for number, line in _speaking(text)
        for match in (
            _MENTION.finditer(line)
            if len(line) <= LONGEST_LINE
            else itertools.islice(_MENTION_IN_DATA.finditer(line), 1)
        )
    ]
    rest = {number for number, _, _ in found if number not in said}
    prose = _prose(text, path, rest) if rest else {}
    other = _IN_CODE.get(kind_of(path) or Kind.PYTHON, Meaning.NAME)
    all_ = [
        Mention(number, column + 1, word, said.get(number) or _meaning(prose.get(number, []), column, other))
        for number, column, word in found
    ]
    if (kind_of(path) or Kind.PYTHON) is Kind.PYTHON and any(one.meaning is Meaning.NAME for one in all_):
        all_ = _proved(all_, path, output, project)
    elif (kind := kind_of(path)) in KINDS and any(one.meaning is Meaning.NAME for one in all_):
        all_ = _proved_in_text(all_, text, TextFile(path, output, kind))
    return tuple(all_)


def _proved_in_text(found: list[Mention], text: SourceText, file: TextFile) -> list[Mention]:
    """The mentions in a script or a configuration, each name with its proof in the same file."""
    known = find_own_names(file)
    starts = list(itertools.accumulate(map(len, text.lines), initial=0))
    ranges = [(one.start, one.end) for one in find_programs(text.text, file.kind)]

    def prove(one: Mention) -> str:
        at = one.column - 1
        if any(start <= starts[one.line - 1] + at < end for start, end in ranges):
            return "in a Python program, which the rules for Python have seen"
        return prove_word(text.lines[one.line - 1], (at, at + len(one.word)), known)

    return [dataclasses.replace(one, proof=prove(one)) if one.meaning is Meaning.NAME else one for one in found]


def _speaking(text: SourceText) -> Iterator[tuple[int, str]]:
    """The lines that may hold a mention, with their numbers; most files have none."""
    whole = text.text.lower()
    words = [word for word in PLAIN if word in whole]
    if words:
        for number, line in enumerate(text.lines, 1):
            small = line.lower()
            if any(word in small for word in words):
                yield number, line


def _proved(found: list[Mention], path: str, output: bytes, project: Definitions | None) -> list[Mention]:
    """The mentions with the proof of each name; a name without one is what a person has to decide about."""
    proofs: dict[tuple[int, str], str] = {}
    try:
        for mention in find_mentions(parse_module(path, output, project)):
            last = mention.node.lineno if isinstance(mention.node, _DEFINES) else mention.node.end_lineno
            for word in filter(says_cuda, re.split(r"\W+", mention.word)):
                for line in range(mention.node.lineno, (last or mention.node.lineno) + 1):
                    proofs[line, word] = mention.proof
    except (SourceError, RecursionError, MemoryError):
        return found  # the finding about the file says all there is to say
    return [
        dataclasses.replace(one, proof=_proof(one, proofs)) if one.meaning is Meaning.NAME else one for one in found
    ]


_DEFINES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _proof(mention: Mention, proofs: Mapping[tuple[int, str], str]) -> str:
    """Why each part of a dotted word in its line is harmless; empty where one of them has no proof."""
    parts = [part for part in re.split(r"\W+", mention.word) if says_cuda(part)]
    known = [proofs.get((mention.line, part), "") for part in parts]
    return "; ".join(dict.fromkeys(known)) if known and all(known) else ""


_MEANING = {Severity.ERROR: Meaning.BLOCKER, Severity.WARNING: Meaning.DECISION, Severity.INFO: Meaning.KEPT}


# C++ and CUDA code that says CUDA is not renamed but written anew.
_IN_CODE = {Kind.CUDA_SOURCE: Meaning.BLOCKER, Kind.CPP_SOURCE: Meaning.DECISION}


def _meaning(prose: list[tuple[int, int]], column: int, other: Meaning) -> Meaning:
    return Meaning.PROSE if any(start <= column < end for start, end in prose) else other


def _prose(text: SourceText, path: str, lines: set[int]) -> dict[int, list[tuple[int, int]]]:
    """For each line the column ranges of comments and of strings of several words."""
    kind = kind_of(path) or Kind.PYTHON
    if kind is Kind.NOTEBOOK:
        return _outside_code(text, path)
    if kind is not Kind.PYTHON:
        return {
            number: [(0, len(text.lines[number - 1]))] for number in lines if is_comment(text.lines[number - 1], kind)
        }
    ranges: dict[int, list[tuple[int, int]]] = {}
    starts = list(itertools.accumulate(map(len, text.lines), initial=0))
    for match in _WRITTEN.finditer(text.text):
        if match[0][0] != "#" and len(match[0].split()) < 2:
            continue
        first, last = (bisect.bisect_right(starts, place) - 1 for place in (match.start(), match.end() - 1))
        for number in range(first, last + 1):
            begin = match.start() - starts[number] if number == first else 0
            end = match.end() - starts[number] if number == last else 10**9
            ranges.setdefault(number + 1, []).append((begin, end))
    return ranges


def _outside_code(text: SourceText, path: str) -> dict[int, list[tuple[int, int]]]:
    """For each line of a notebook the column ranges that are no code: text cells, outputs, comments."""
    try:
        code = Notebook(path, text.data).code_ranges()
    except SourceError:
        return {}  # the finding about the notebook says all there is to say
    ranges: dict[int, list[tuple[int, int]]] = {}
    start = 0
    for number, line in enumerate(text.lines, 1):
        end, position = start + len(line), start
        while code and code[0][1] <= start:
            code.pop(0)
        for first, last, comment in code:
            if first >= end:
                break
            if not comment:
                ranges.setdefault(number, []).append((position - start, first - start))
                position = last
        ranges.setdefault(number, []).append((position - start, end - start))
        start = end
    return ranges
