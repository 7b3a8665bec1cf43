"""The rules for Python on the programs inside other files, and their edits between the quotes there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules.files import TextFile
from torchport.source.edits import splice
from torchport.source.embedded import Program, find_programs
from torchport.source.module import Module
from torchport.source.text import SourceError

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:,")
_HINT = "The quotes around this code do not allow the edit: change it by hand."
_IMPORT = "TP001"


@dataclasses.dataclass(frozen=True, slots=True)
class Embedded:
    """The findings of the programs in one file, and the characters between which they stand."""

    findings: tuple[Finding, ...]
    ranges: tuple[tuple[int, int], ...]


def inspect_programs(
    file: TextFile, inspect: Callable[[str, bytes], tuple[Module, Iterable[Finding]] | None]
) -> Embedded:
    """Findings of `inspect` on each program, at their places in the file.

    An edit is kept only if the program that is read from the edited file is the edited program, so that the shell's
    quotes around it still hold. Without that the finding is for a person.
    """
    findings: list[Finding] = []
    ranges = []
    programs = find_programs(file.text.text, file.kind)
    for index, program in enumerate(programs):
        ranges.append((program.start, program.end))
        try:
            inspected = inspect(file.text.path, program.code.encode(errors="surrogatepass"))
        except (SourceError, RecursionError, MemoryError):
            continue
        if inspected is not None:
            module, found = inspected
            findings += _placed(file, index, program, module, list(found))
    return Embedded(tuple(findings), tuple(ranges))


def _placed(file: TextFile, index: int, program: Program, module: Module, found: list[Finding]) -> Iterator[Finding]:
    """The findings in the file; those with edits without them where one of all does not fit."""
    if "\\\n" in program.code or "\n" in program.forbidden:  # make and docker take such lines for one
        found = [_on_its_line(module, one) for one in found]
    placed = [(one, _fix(file, program, module, one)) for one in found]
    edits = [edit for one, fix in placed for edit in fix if one.safety is not Safety.REPORT]
    inner = [edit for one, fix in placed for edit in one.fix if fix and one.safety is not Safety.REPORT]
    whole = not edits or _holds(file, index, module, edits, inner)
    written = whole and any(fix for one, fix in placed if one.code != _IMPORT)
    for one, fix in placed:
        if one.code != _IMPORT or written:  # torch_npu is for what is written here
            yield _finding(file, program, module, one, fix if whole else ())


def _finding(file: TextFile, program: Program, module: Module, one: Finding, fix: tuple[Edit, ...]) -> Finding:
    where, message, evidence = one.location, one.message, one.evidence
    if where is not None:
        first, last = (
            _to_index(module, *at) for at in ((where.line, where.column), (where.end_line, where.end_column))
        )
        start = program.to_place(first)
        end = max(start, min(program.to_place(last - 1) + 1, program.end)) if last > 0 else start
        where = file.text.to_location(_to_offset(file, start), _to_offset(file, end))
        if None in program.places[first:last]:  # what is put in later is told as it is written
            written, read = file.text.text[start:end].strip("'\""), program.code[first:last].strip("'\"")
            message = message.replace(read, written)
            evidence = {**evidence, "source": written}
    if fix or not one.fix:
        return dataclasses.replace(one, location=where, fix=fix, message=message, evidence=evidence)
    severity = Severity.WARNING if one.severity is Severity.INFO else one.severity
    hint = one.hint or _HINT
    return dataclasses.replace(
        one,
        location=where,
        fix=(),
        safety=Safety.REPORT,
        severity=severity,
        hint=hint,
        message=message,
        evidence=evidence,
    )


def _fix(file: TextFile, program: Program, module: Module, one: Finding) -> tuple[Edit, ...]:
    """The edits in the file; empty where one of them has no place there."""
    result = []
    for edit in one.fix:
        first, last, new = _index_of(module, edit.start), _index_of(module, edit.end), edit.replacement.decode()
        new = new.replace("\r\n", "\n")
        place = program.to_range(first, last)
        if place is None or not program.forbidden.isdisjoint(new) or (program.forbidden and not _is_plain(new)):
            return ()
        new = new.replace("\n", file.text.newline + program.indent)
        result.append(Edit(_to_offset(file, place[0]), _to_offset(file, place[1]), new.encode(file.text.encoding)))
    return tuple(result)


def _on_its_line(module: Module, one: Finding) -> Finding:
    """The import of torch_npu behind the statement that it follows, where a new line would not be one for Python."""
    where = one.location
    if one.code != _IMPORT or where is None or not any(b"\n" in edit.replacement for edit in one.fix):
        return one
    end = len("".join(module.text.lines)[: _to_index(module, where.end_line, where.end_column)].encode())
    return dataclasses.replace(one, fix=(Edit(end, end, b"; import torch_npu"),))


def _is_plain(text: str) -> bool:
    """Whether a text means itself between the quotes of a shell and of YAML."""
    return all(char in _SAFE or char in " ;\n()=[]'\"+-/*" for char in text)


def _holds(file: TextFile, index: int, module: Module, edits: list[Edit], inner: list[Edit]) -> bool:
    """Whether the edited file has the edited program at this place."""
    try:
        output = splice(file.text.data, edits)
        wanted = splice(module.text.data, inner).decode()
        again = find_programs(TextFile(file.text.path, output, file.kind).text.text, file.kind)
    except (ValueError, SourceError):
        return False
    return index < len(again) and again[index].code == wanted


def _index_of(module: Module, offset: int) -> int:
    """The character of the code at a byte offset."""
    return len(module.text.data[:offset].decode(errors="surrogatepass"))


def _to_index(module: Module, line: int, column: int) -> int:
    return sum(map(len, module.text.lines[: line - 1])) + column - 1


def _to_offset(file: TextFile, character: int) -> int:
    """The byte offset in the file of a character of its text."""
    text = file.text
    before = len(text.data) - len(text.text.encode(text.encoding))
    return before + len(text.text[:character].encode(text.encoding))
