"""What a conversion made of the lines of a case, in a word for each line that matters."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path

from casefile import ANY, CHANGED, EITHER, KEPT, SAID, Case, File, Line
from entry import too_late

from torchport.convert import convert_tree
from torchport.findings import Finding, Severity

# Kept lines that do not match count only where something was done to them.
MENTION = re.compile(r"cuda|nccl|nvidia|nvcc|cudnn|(?<![a-z])gpus?(?![a-z])", re.IGNORECASE)
_TORCH = re.compile(r'(?m)^\s*"?(?:import|from) torch\b')
_OF_NPU = re.compile("npu|hccl")  # needs torch_npu; a dispatch key or a variable of Ascend's does not
# What a conversion may add to a project that it changes; in a notebook it stands before another line of a cell.
_ADDED = re.compile(
    r"torch_npu|TORCH_NPU_\w+|^import (?:os|torch)$|default_device_backend_map|^\W*$"
    r"|is_bf16_supported = lambda|optimizer_module"  # where a script hides all devices: rules/hidden_cards.py
)
_IN_CELL = "import torch_npu\\n"
_CUDA_WORDS = {
    "torch_npu.npu": "torch.cuda",
    "is_npu": "is_cuda",
    "npu": "cuda",
    "hccl": "nccl",
    "HCCL": "NCCL",
    "NPU": "CUDA",
    "ASCEND_RT": "CUDA",
    "ASCEND": "CUDA",
}


class Word(enum.StrEnum):
    """What is said of a line."""

    RIGHT = "right"
    REPORTED = "reported only"  # although a rewrite is provable
    SILENT = "silent miss"  # it stops on an NPU, or means something else there, and nothing asks for anything
    WRONG = "wrong edit"
    FALSE = "false finding"
    CRASH = "crash"  # the converter gave no result


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    case: str
    category: str
    path: str
    line: int
    word: Word
    text: str  # the line of the source
    got: str = ""  # what it has become, where that is another
    said: tuple[str, ...] = ()  # the codes of the findings that have the line in their range


def judge_case(case: Case, folder: Path) -> list[Verdict]:
    """Convert the case in the empty folder `folder`, and judge all its lines. The result stays in `folder`/after."""
    before, after = folder / "before", folder / "after"
    before.mkdir()
    case.write(before)
    try:
        result = convert_tree(before, after)
    except Exception as error:  # whatever it is, the other cases are judged
        return [Verdict(case.name, case.category, "", 0, Word.CRASH, repr(error))]
    if bugs := [one for one in result.findings if one.code == "TP903"]:
        return [Verdict(case.name, case.category, "", 0, Word.CRASH, bugs[0].message)]
    outputs = {file.path: (after / file.path).read_bytes() for file in case.files}
    return judge(case, outputs, result.findings)


def judge(case: Case, outputs: Mapping[str, bytes], findings: Sequence[Finding]) -> list[Verdict]:
    """The verdicts on a case whose files have become `outputs`, with these findings."""
    verdicts: list[Verdict] = []
    may_add = any(file.data() != outputs[file.path] for file in case.files if _wants_edits(file))
    for file in case.files:
        here = [one for one in findings if one.location is not None and one.location.path == file.path]
        text = outputs[file.path].decode(file.encoding, "backslashreplace")
        output = (text.replace(_IN_CELL, "") if file.path.endswith(".ipynb") else text).splitlines()
        became, added = aligned([line.text for line in file.lines], output)
        free = False  # a line that may become anything has become something: perhaps several lines
        for number, (line, got) in enumerate(zip(file.lines, became, strict=True), 1):
            begins = _worst(one for one in here if one.location.line == number)  # type: ignore[union-attr]
            covers = [one for one in here if one.location.line <= number <= one.location.end_line]  # type: ignore[union-attr]
            word = judge_line(line, got, _worst(covers), begins)
            free = free or (line.marker == SAID and got != line.text)
            if word is None:
                continue
            codes = tuple(sorted({one.code for one in covers}))
            changed = "(removed)" if got is None else got if got != line.text else ""
            verdicts.append(Verdict(case.name, case.category, file.path, number, word, line.text, changed, codes))
        for text in added:
            if not free and not (may_add and _ADDED.search(text.strip().strip('",').removesuffix("\\n"))):
                verdicts.append(Verdict(case.name, case.category, file.path, 0, Word.WRONG, "(added)", text))
    return verdicts + _without_import(case, outputs)


def _wants_edits(file: File) -> bool:
    return any(line.becomes or line.marker in (SAID, ANY) for line in file.lines)


def judge_line(line: Line, got: str | None, said: Severity | None, begins: Severity | None) -> Word | None:
    """The word for one line, None for one of no interest.

    `got` is what it has become (None: removed), `said` the worst severity of the findings with the line in their range,
    `begins` that of the findings that begin on it.
    """
    warned, same = _asks(said), got == line.text
    for text, needs_warning in line.becomes:
        if got is not None and _spelled(got) == _spelled(text):
            return Word.RIGHT if warned or not needs_warning else Word.SILENT
    if line.marker == ANY:
        return None
    if line.marker == SAID:
        return Word.RIGHT if said is not None or not same else Word.SILENT
    if not same:
        return Word.WRONG
    if line.marker == EITHER:
        return Word.RIGHT
    if line.marker == KEPT:
        if _asks(begins):
            return Word.FALSE
        return Word.RIGHT if MENTION.search(line.text) else None
    if not warned:
        return Word.SILENT
    return Word.REPORTED if line.marker == CHANGED and not line.or_warning else Word.RIGHT


def aligned(before: Sequence[str], after: Sequence[str]) -> tuple[list[str | None], list[str]]:
    """What each line of `before` has become in `after` (None: removed), and the lines that were added.

    Lines are matched by their text with the NPU's words put back to CUDA's, and in their order within what differs.
    """
    if len(before) == len(after):
        return list(after), []
    became: list[str | None] = [None] * len(before)
    added: list[str] = []
    back = [_cuda_words(text) for text in after]
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, [_cuda_words(t) for t in before], back, False).get_opcodes():
        if tag == "equal":
            became[i1:i2] = after[j1:j2]
            continue
        rest = list(range(j1, j2))
        for index in range(i1, i2):
            # As many lines are added as there are more; the best of those that may be this line's.
            spare = len(rest) - (i2 - index)
            candidates = rest[: spare + 1] if spare >= 0 else rest[:1] if rest else []
            if not candidates or (spare < 0 and _alike(before[index], after[candidates[0]]) < 0.5):
                continue
            best = max(candidates, key=lambda j: (_alike(before[index], after[j]), -j))
            became[index] = after[best]
            added += [after[j] for j in rest if j < best]
            rest = [j for j in rest if j > best]
        added += [after[j] for j in rest]
    return became, added


def table(verdicts: Iterable[Verdict]) -> dict[str, dict[str, int]]:
    """For each category, in order, the number of verdicts of each word; `all` last."""
    counts: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        for row in (verdict.category, "all"):
            counts.setdefault(row, Counter())[verdict.word] += 1
    rows = sorted(counts, key=lambda row: (row == "all", row))
    return {row: {word.value: counts[row][word] for word in Word} for row in rows}


def markdown(rows: Mapping[str, Mapping[str, int]]) -> str:
    """The table for people."""
    words = [word.value for word in Word]
    head = ["category", "lines", *words]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name, row in rows.items():
        cells = [name.replace("_", " "), sum(row.values()), *(row[word] for word in words)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _without_import(case: Case, outputs: Mapping[str, bytes]) -> list[Verdict]:
    """A wrong edit for each file that uses the NPU before torch_npu is imported."""
    texts = {file.path: outputs[file.path].decode(file.encoding, "backslashreplace") for file in case.files}
    scripts = {path: text.lstrip("\ufeff") for path, text in texts.items() if path.endswith(".py")}
    sources = {file.path: file.data().decode(file.encoding) for file in case.files}
    changed = {path for path, text in texts.items() if len(_OF_NPU.findall(text)) > len(_OF_NPU.findall(sources[path]))}
    late = too_late(scripts, {path for path in changed if _TORCH.search(texts[path])})
    late += [
        path
        for path in changed
        if path.endswith(".ipynb") and "torch_npu" not in texts[path] and _TORCH.search(texts[path])
    ]
    said = "(torch_npu is not imported first)"
    return [Verdict(case.name, case.category, path, 0, Word.WRONG, said) for path in late]


def _cuda_words(text: str) -> str:
    for npu, cuda in _CUDA_WORDS.items():
        text = text.replace(npu, cuda)
    return text


def _alike(before: str, after: str) -> float:
    return SequenceMatcher(None, _cuda_words(before), _cuda_words(after), False).ratio()


def _spelled(text: str) -> str:
    """The text without what may be spelled in several ways: blanks within the line, the kind of quotes."""
    body = text.lstrip()
    return text[: len(text) - len(body)] + re.sub(r"\s+", "", body).replace("'", '"')


def _asks(severity: Severity | None) -> bool:
    return severity in (Severity.WARNING, Severity.ERROR)


def _worst(findings: Iterable[Finding]) -> Severity | None:
    order = [Severity.INFO, Severity.WARNING, Severity.ERROR]
    return max((one.severity for one in findings), key=order.index, default=None)
