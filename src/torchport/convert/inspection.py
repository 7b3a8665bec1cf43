"""Run all rules over one file: whatever the file holds, the answer is findings."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import re
import threading
from collections.abc import Callable, Iterable, Iterator

from torchport.convert.embedded import inspect_programs
from torchport.findings import Finding, Location, Safety, Severity
from torchport.rules import Rule, Style, list_rules
from torchport.rules.files import TextFile, file_rules
from torchport.rules.files.unexplained_words import RULE as _WORDS_RULE
from torchport.rules.kernel_guards import find_capability_tests, find_kernel_guards
from torchport.rules.lightning_accelerator import find_lightning_devices
from torchport.rules.npu_branches import find_npu_ranges, is_in_ranges
from torchport.rules.torch_npu_import import may_be_started
from torchport.rules.unexplained import RULE as _UNEXPLAINED_RULE
from torchport.source.definitions import Definitions
from torchport.source.kinds import Kind, kind_of
from torchport.source.module import Module
from torchport.source.notebook import Notebook
from torchport.source.text import UTF_16, SourceError, SourceText

UNEXPLAINED = _UNEXPLAINED_RULE.code
KEPT_FOR_NPU = "this stays as it is: the NPU has a branch of its own beside it"
KEPT_FOR_FALLBACK = "this stays as it is: it opens a CUDA kernel, which stays off on the NPU, and the other code runs"
KEPT_FOR_CAPABILITY = "this stays as it is, and false on the NPU: it asks for the compute capability of a CUDA device"
KEPT_FOR_LIGHTNING = "this stays as it is: lightning's device is called cuda on the NPU, too (transfer_to_npu)"
LARGEST = 8 * 2**20  # bytes; the largest file of torch itself has 1.4 MB
_KEPT = 8 * 2**20  # bytes of sources; parsed, they take 50 times as much
_TOO_LARGE = f"the file is larger than {LARGEST // 2**20} MiB"
_IGNORE = re.compile(r"(?:#|//|;)\s*torchport:\s*ignore(?:\[([A-Z0-9,\s]+)\])?")


def inspect_source(
    data: bytes,
    path: str,
    style: Style = Style.NPU,
    project: Definitions | None = None,
    ignore: frozenset[str] = frozenset(),
) -> tuple[Finding, ...]:
    """All findings of one file in the order of their places; `path` tells what kind of file it is.

    `project` says which classes of the project's other files have methods of torch's names. Rules' findings with codes
    in `ignore` are left out, as those of lines that end with `# torchport: ignore`.

    The edits of the findings do not overlap. A file that cannot be read or parsed, and a rule that fails, are
    findings too (TP901 to TP903); nothing is raised.
    """
    if len(data) > LARGEST:
        words = re.search(rb"(?i:cuda|nccl|nvidia)", data)
        return (about_file("TP904", path, _TOO_LARGE, "Convert it by hand."),) if words else ()
    uses = project is not None and (
        (path in project.leading and may_be_started(data, path, project))
        or any(name.encode() in data for name in project.extensions)
    )
    kind = kind_of(path) or Kind.PYTHON  # without a suffix: a script with a `#!` line
    if not uses and not _may_concern(data.replace(b"\0", b"") if data.startswith(UTF_16) else data, kind):
        return ()
    try:
        if kind is Kind.PYTHON:
            return _in_order(_inspect(parse_module(path, data, project), style, ignore))
        if kind is Kind.NOTEBOOK:
            return _in_order(_inspect_notebook(path, data, style, project, ignore))
        return _in_order(_without_overlaps(_inspect_text(TextFile(path, data, kind), style, ignore, project)))
    except (SourceError, RecursionError, MemoryError) as error:
        return (_unparsed(path, error),)


class _Parsed(threading.local):
    """The file that was parsed last, since what is left in it is looked for right after, and files that were parsed for
    their project and are still to be converted."""

    def __init__(self) -> None:
        self.last: tuple[Definitions | None, Module] | None = None
        self.kept: dict[str, tuple[Definitions | None, Module]] = {}
        self.size = 0  # bytes of their sources


_parsed = _Parsed()


def parse_module(path: str, data: bytes, project: Definitions | None = None) -> Module:
    """The parsed file, which is kept until the next one. Raises as Module does."""
    kept = _parsed.kept.pop(path, None)
    if kept is not None:
        _parsed.size -= len(kept[1].text.data)
    for known in (_parsed.last, kept):
        if known is not None and known[0] is project and (known[1].text.path, known[1].text.data) == (path, data):
            _parsed.last = known
            return known[1]
    _parsed.last = None
    module = Module(path, data, project)
    _parsed.last = project, module
    return module


def keep_module(path: str) -> None:
    """Keep the file that was parsed last until it is parsed again, where there is room."""
    if _parsed.last is not None and _parsed.size < _KEPT:
        _parsed.kept[path] = _parsed.last
        _parsed.size += len(_parsed.last[1].text.data)


def _may_concern(data: bytes, kind: Kind) -> bool:
    """Whether a rule may have something to say about a file of this kind; about most none has."""
    words = _words(kind)
    if words is None:
        return True
    small = data.lower()
    code = list_rules() if kind in (Kind.PYTHON, Kind.NOTEBOOK) else ()
    return any(word in small for word in words) or any(rule.mentions(data) for rule in code)


@functools.cache
def _words(kind: Kind) -> tuple[bytes, ...] | None:
    """The words of all rules for this kind of file; None if one of them is asked about every file."""
    if kind is Kind.PYTHON:
        asked = [rule.words for rule in list_rules()]
    elif kind is Kind.NOTEBOOK:  # a package that is installed in it alone, by a line for the shell, is not enough
        in_shell = (rule.words_of(kind) for rule in file_rules() if Kind.SHELL in rule.kinds)
        of_lines = [words for words in in_shell if words is not None]
        asked = [*(rule.words for rule in list_rules()), *of_lines]
    else:
        asked = [rule.words_of(kind) for rule in file_rules() if kind in rule.kinds]
    if None in asked:
        return None
    return tuple(sorted({word for words in asked for word in words or ()}))


def _unparsed(path: str, error: SourceError | RecursionError | MemoryError) -> Finding:
    if isinstance(error, SourceError):
        return about_file(error.code, path, error.message, line=error.line, column=error.column)
    return about_file("TP901", path, "the code is nested too deeply to be analysed")


def report_unreadable(data: bytes, path: str) -> tuple[Finding, ...]:
    """The finding on a Python file or notebook that cannot be parsed, whether or not it names CUDA; nothing for another
    file."""
    kind = kind_of(path) or Kind.PYTHON
    if kind not in (Kind.PYTHON, Kind.NOTEBOOK) or len(data) > LARGEST:
        return ()
    try:
        (Module if kind is Kind.PYTHON else Notebook)(path, data)
    except (SourceError, RecursionError, MemoryError) as error:
        return (_unparsed(path, error),)
    return ()


def inspect_with(
    data: bytes,
    path: str,
    check: Callable[[Module], Iterable[Finding]],
    project: Definitions | None = None,
    ignore: frozenset[str] = frozenset(),
) -> tuple[Finding, ...]:
    """The findings of one check in a Python file; none where it cannot be read, which `inspect_source` says."""
    if len(data) > LARGEST:
        return ()
    try:
        module = parse_module(path, data, project)
        found = [finding for finding in check(module) if not _is_ignored(module, finding, ignore)]
        return _in_order(_without_overlaps(found))
    except (SourceError, RecursionError, MemoryError):
        return ()
    except Exception as error:  # as for one rule: a finding, not the end
        return (make_bug_finding(path, f"a stage of the conversion failed: {type(error).__name__}: {error}"),)


def _inspect(module: Module, style: Style, ignore: frozenset[str]) -> list[Finding]:
    found: list[Finding] = []
    ignored: list[Finding] = []
    kept = [(KEPT_FOR_NPU, find_npu_ranges(module)), (KEPT_FOR_FALLBACK, find_kernel_guards(module))]
    kept.append((KEPT_FOR_CAPABILITY, find_capability_tests(module)))
    if style is Style.NPU:
        kept.append((KEPT_FOR_LIGHTNING, find_lightning_devices(module)))
    for rule in list_rules():
        if rule.after is not None and not _has_written(found, rule.after) and not rule.alone(module):
            continue
        for finding in _run(rule, module, style):
            if rule.after is not None:
                found.append(finding)
            elif _is_ignored(module, finding, ignore):
                ignored.append(finding)
            else:
                found.append(_keep_as_it_is(module, finding, kept))
    return list(_without_overlaps(_spoken_once(found, ignored)))


def _spoken_once(found: list[Finding], ignored: list[Finding]) -> Iterator[Finding]:
    """The findings without those on names of which another one speaks, be it one that nobody wants to hear.

    Two speak of the same name where their places share text.
    """
    others = sorted(
        ((place.line, place.column), (place.end_line, place.end_column))
        for place in (one.location for one in (*found, *ignored) if one.code != UNEXPLAINED)
        if place is not None
    )
    begins = [begin for begin, _ in others]
    ends = list(itertools.accumulate((end for _, end in others), max))  # the last of those up to each
    for one in found:
        where = one.location
        if one.code == UNEXPLAINED and where is not None:
            before = bisect.bisect_left(begins, (where.end_line, where.end_column))
            if before and ends[before - 1] > (where.line, where.column):
                continue
        yield one


def _keep_as_it_is(module: Module, finding: Finding, kept: list[tuple[str, list[tuple[int, int]]]]) -> Finding:
    """The finding, as a note only where its code stands in a range that has to stay, for the reason that is given."""
    where = finding.location
    if where is None or finding.code == "TP903" or not any(ranges for _, ranges in kept):
        return finding
    column = len(module.text.lines[where.line - 1][: where.column - 1].encode())
    start = module.text.position_to_offset(where.line, column)
    for reason, ranges in kept:
        if is_in_ranges(ranges, start):
            evidence = {**finding.evidence, "kept": reason}
            return dataclasses.replace(
                finding,
                severity=Severity.INFO,
                safety=Safety.REPORT,
                message=reason,
                hint="",
                fix=(),
                evidence=evidence,
            )
    return finding


def _inspect_notebook(
    path: str, data: bytes, style: Style, project: Definitions | None, ignore: frozenset[str]
) -> Iterator[Finding]:
    """The findings of the code cells, at their places in the file."""
    notebook = Notebook(path, data)
    module, file = Module(path, notebook.code, project), SourceText(path, data)
    if notebook.skipped:
        cells = ", ".join(map(str, notebook.skipped))
        finding = about_file("TP901", path, f"code cells that are not Python were not looked at: {cells}")
        yield dataclasses.replace(finding, severity=Severity.INFO)
    shell = TextFile(path, notebook.shell, Kind.SHELL)
    in_shell = list(_without_overlaps(_inspect_text(shell, style, ignore, project)))
    for text, found in ((module.text, _inspect(module, style, ignore)), (shell.text, in_shell)):
        for finding in found:
            edits = [notebook.to_file_edit(edit) for edit in finding.fix]
            fix = tuple(edit for edit in edits if edit is not None)
            where = finding.location
            if where is not None:
                column = len(text.lines[where.line - 1][: where.column - 1].encode())
                start = notebook.to_file_offset(text.position_to_offset(where.line, column))
                where = file.to_location(start, start)
            whole = len(fix) == len(edits)
            safety = finding.safety if whole else Safety.REPORT
            yield dataclasses.replace(finding, location=where, fix=fix if whole else (), safety=safety)


def _inspect_text(
    file: TextFile, style: Style, ignore: frozenset[str], project: Definitions | None
) -> Iterator[Finding]:
    """Findings of the rules for this kind of file, and of the rules for Python on the programs in it."""

    def inspect(path: str, code: bytes) -> tuple[Module, list[Finding]] | None:
        if not _may_concern(code, Kind.PYTHON):
            return None
        module = Module(path, code, project)
        return module, _inspect(module, style, ignore)

    embedded = inspect_programs(file, inspect)
    found = list(embedded.findings)
    lines = _lines_between(file, embedded.ranges)
    for rule in file_rules():
        if file.kind in rule.kinds:
            found += (finding for finding in rule.check(file, style) if not _is_between(finding, lines))
    spoken = {one.location.line for one in found if one.location is not None and one.code != _WORDS_RULE.code}
    for finding in found:
        alone = finding.code != _WORDS_RULE.code or finding.location is None or finding.location.line not in spoken
        if alone and not _is_ignored(file, finding, ignore):
            yield finding


def _is_between(finding: Finding, ranges: list[tuple[tuple[int, int], tuple[int, int]]]) -> bool:
    where = finding.location
    return where is not None and any(start <= (where.line, where.column) < end for start, end in ranges)


def _lines_between(file: TextFile, ranges: Iterable[tuple[int, int]]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Ranges of characters as (line, column) from 1."""
    starts = list(itertools.accumulate(map(len, file.text.lines), initial=0))

    def place(at: int) -> tuple[int, int]:
        line = bisect.bisect_right(starts, at)
        return line, at - starts[line - 1] + 1

    return [(place(start), place(end)) for start, end in ranges]


def _has_written(findings: Iterable[Finding], pattern: re.Pattern[bytes]) -> bool:
    return any(pattern.search(edit.replacement) for finding in findings for edit in finding.fix)


def _run(rule: Rule, module: Module, style: Style) -> list[Finding]:
    try:
        return list(rule.check(module, style))
    except RecursionError:
        raise
    except Exception as error:  # one rule's bug must not hide what the others have to say
        message = f"rule {rule.code} failed: {type(error).__name__}: {error}"
        return [make_bug_finding(module.text.path, message)]


def make_bug_finding(path: str, message: str) -> Finding:
    """The finding for a mistake of ours: the file is left alone."""
    hint = "This is a bug in torchport; the file is left as it is. Please report it with the file."
    return Finding("TP903", Severity.ERROR, Safety.REPORT, Location(path, 1, 1, 1, 1), message, hint)


def about_file(
    code: str,
    path: str,
    message: str,
    hint: str = "Nothing is known about what it needs.",
    line: int = 1,
    column: int = 1,
) -> Finding:
    """The finding for a file that cannot be converted as a whole."""
    place = Location(path, line, column, line, column)
    return Finding(code, Severity.ERROR, Safety.REPORT, place, message, f"The file is left as it is. {hint}")


def _is_ignored(file: Module | TextFile, finding: Finding, codes: frozenset[str]) -> bool:
    """Whether it has one of `codes`, or its line ends with `# torchport: ignore` or `# torchport: ignore[TP101]`."""
    if finding.code in codes:
        return True
    if finding.location is None or not file.text.lines:
        return False
    lines = _exempt(file.text)
    if finding.location.line not in lines:
        return False
    exempt = lines[finding.location.line]
    return exempt is None or finding.code in exempt


@functools.lru_cache(maxsize=2)  # every finding of a file asks, and a line may have thousands
def _exempt(text: SourceText) -> dict[int, frozenset[str] | None]:
    """The lines that ask for silence, counted from 1, with the codes; None for all codes."""
    marked = {number: _IGNORE.search(line) for number, line in enumerate(text.lines, 1) if "torchport" in line}
    return {
        number: None if found[1] is None else frozenset(code.strip() for code in found[1].split(","))
        for number, found in marked.items()
        if found is not None
    }


def _without_overlaps(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings whose edits fit together; where two claim the same bytes, the one that changes more stays."""
    taken: list[tuple[int, int]] = []  # in order, none over another
    for finding in sorted(findings, key=_extent, reverse=True):
        places = [(edit.start, edit.end) for edit in finding.fix]
        if not any(_collides(taken, place) for place in places):
            for place in places:
                bisect.insort(taken, place)
            yield finding


def _extent(finding: Finding) -> int:
    return sum(edit.end - edit.start for edit in finding.fix)


def _collides(taken: list[tuple[int, int]], place: tuple[int, int]) -> bool:
    """Whether a place shares bytes with one that is taken, or is the same; insertions may touch."""
    start, end = place
    index = bisect.bisect_left(taken, place)
    # Beside the place before, an insertion at the start of that one may stand between the two.
    first = max(index - 2, 0)
    for other in taken[first:index]:
        if other[0] < end and start < other[1]:
            return True
    while index < len(taken) and (taken[index] == place or taken[index][0] < end):
        if taken[index] == place or start < taken[index][1]:
            return True
        index += 1
    return False


def _in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    def place(finding: Finding) -> tuple[int, int, str]:
        where = finding.location
        return (where.line, where.column, finding.code) if where else (0, 0, finding.code)

    return tuple(sorted(findings, key=place))
