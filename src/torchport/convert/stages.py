"""Conversions that follow each other on one file, told as one: the user's own rules, several devices, the NPU."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator

from torchport.convert.inspection import inspect_with, make_bug_finding
from torchport.convert.source import Conversion, collect_edits, problem_of
from torchport.findings import Edit, Finding, Location, Safety, Severity
from torchport.rules import Style, stops, torch_support
from torchport.rules.custom import CustomRules
from torchport.rules.distribute import distribution_rules, loader
from torchport.rules.distribute.program import Program
from torchport.rules.distribute.script import LOADERS, Script
from torchport.source.definitions import Definitions
from torchport.source.edits import compose_edits, find_origin_offset, splice
from torchport.source.kinds import Kind, kind_of
from torchport.source.module import Module
from torchport.source.text import SourceText


@dataclasses.dataclass(frozen=True, slots=True)
class Extras:
    """What is done to a project before it is converted for the NPU.

    `main` is the file, named as in findings, that is to run on several devices, `model` the variable of its model;
    `custom` are the user's own rules. What torch_npu refuses is always reported; `support` reports what it computes on
    the CPU or does not have as well.
    `ignore` are codes of findings that are neither reported nor acted on, in the conversion itself too. `asked_for` is
    a file that the user has named: that it cannot be parsed is said even where it does not name CUDA. `assume_modules`
    takes what unknown libraries make for tensors and modules of torch where its method cuda is called;
    `ignore_npu_path` converts code that stands beside a branch or a sibling for the NPU as well; `tries` imports the
    files that are changed on the virtual NPU, before and after (`trial`).
    """

    main: str = ""
    model: str = "model"
    custom: CustomRules | None = None
    support: bool = False
    ignore: frozenset[str] = frozenset()
    asked_for: bool = False
    assume_modules: bool = False
    ignore_npu_path: bool = False
    tries: bool = False

    def iter_stages(self, path: str, data: bytes) -> Iterator[Callable[[Module], Iterable[Finding]]]:
        """What looks at the file, in order; each sees what the one before has written."""
        if self.custom is not None:
            yield self.custom.check_module
        if self.support and torch_support.NAMES_TORCH.search(data):
            yield torch_support.check_module
        elif torch_support.NAMES_TORCH.search(data) and torch_support.refused_words().search(data):
            yield torch_support.check_refused_names
        if stops.may_stop(data):
            yield stops.check_module
        if path == self.main:
            yield self._distribute
        elif self.main:
            yield self._loaders_elsewhere

    def _distribute(self, module: Module) -> Iterator[Finding]:
        script = Script(module.text.path, module.text.data, self.model, module.project)
        program = Program(script) if self.custom is None else None
        for rule in distribution_rules():
            if program is None or not program.beside or rule not in Program.RULES:
                yield from rule.check(script, Style.NPU)
        if program is not None:
            yield from program.check_loaders(module.text.path, Style.NPU)

    def _loaders_elsewhere(self, module: Module) -> Iterator[Finding]:
        """A file beside the main one: what it makes is followed where a function makes it for the main file."""
        script = Script(module.text.path, module.text.data, "", module.project)
        outside = module.project.outside
        if not script.loaders:
            return
        main = outside.load_module(self.main, module) if outside is not None and self.custom is None else None
        if main is not None:
            program = Program(Script(self.main, main.text.data, self.model, module.project))
            if any(one.text.data == module.text.data for one in program.beside if one.text.path == module.text.path):
                yield from program.check_loaders(module.text.path, Style.NPU)
                return
        for call in script.loaders:
            yield loader.RULE.make_finding(
                module,
                call,
                f"{LOADERS[0]} outside of the main file: whether it is trained on is not proven",
                hint="If it is, give it a DistributedSampler in place of shuffle=True, and call its set_epoch(epoch).",
                safety=Safety.REPORT,
                severity=Severity.WARNING,
            )


def convert_in_stages(
    data: bytes, path: str, extras: Extras, project: Definitions | None, last: Callable[[bytes], Conversion]
) -> Conversion:
    """Run the stages that `extras` asks for and then `last`, which converts for the NPU.

    Locations are those of the original file. A finding's fix is what its own stage does: where a later stage converts
    text that an earlier one has written, only `Conversion.edits` tell the sum.
    """
    done = Conversion(data, ())
    if (kind_of(path) or Kind.PYTHON) is Kind.PYTHON:
        for stage in extras.iter_stages(path, data):
            findings = inspect_with(done.output, path, stage, project, extras.ignore)
            done = _then(data, path, done, findings, collect_edits(findings))
    final = last(done.output)
    own = {finding.code for finding in done.findings if finding.severity is not Severity.INFO and not finding.fix}
    kept = tuple(finding for finding in done.findings if finding.code in own and not finding.fix)
    if not done.edits:  # `last` has looked at the file itself, and has checked what it did
        whole = dataclasses.replace(final, findings=_in_order(done.findings, final.findings))
    else:
        whole = _then(data, path, done, final.findings, final.edits)
    return dataclasses.replace(whole, left=(*final.left, *kept))


def _then(
    data: bytes, path: str, done: Conversion, findings: tuple[Finding, ...], edits: tuple[Edit, ...]
) -> Conversion:
    """`done` and then one more stage, whose findings and edits are about `done.output`."""
    if not edits and not done.edits:
        return dataclasses.replace(done, findings=_in_order(done.findings, findings))
    try:
        combined = compose_edits(data, done.edits, edits) if edits else done.edits
        output = splice(done.output, edits)
        problem = problem_of(data, output, combined, path)
        if not problem and splice(data, combined) != output:
            problem = "the stages of the conversion do not add up"
    except ValueError as error:
        problem = str(error)
    if problem:
        left = tuple(dataclasses.replace(finding, fix=(), safety=Safety.REPORT) for finding in findings)
        return Conversion(done.output, (*done.findings, make_bug_finding(path, problem), *left), done.edits)
    placed = [_place(data, path, done, finding) for finding in findings]
    here = [finding for finding in placed if finding is not None]
    return Conversion(output, _in_order(done.findings, here), combined)


def _in_order(*findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings of one file by their places, those of the first stage first where they share one."""
    return tuple(
        sorted(
            itertools.chain.from_iterable(findings),
            key=lambda finding: (finding.location.line, finding.location.column) if finding.location else (0, 0),
        )
    )


def _place(data: bytes, path: str, done: Conversion, finding: Finding) -> Finding | None:
    """The finding in the original file; None where it only converts what an earlier stage has written."""
    if not done.edits or finding.location is None:
        return finding
    before, after = SourceText(path, data), SourceText(path, done.output)

    def place(line: int, column: int) -> int:
        text = after.lines[line - 1][: column - 1] if line <= len(after.lines) else ""
        return find_origin_offset(
            data,
            done.edits,
            after.position_to_offset(min(line, len(after.lines)), 0) + len(text.encode(after.encoding)),
        )

    where = finding.location
    start, end = place(where.line, where.column), place(where.end_line, where.end_column)
    fix = tuple(
        Edit(one, max(one, find_origin_offset(data, done.edits, edit.end)), edit.replacement)
        for edit in finding.fix
        for one in [find_origin_offset(data, done.edits, edit.start)]
    )
    if finding.fix and start == end and all(edit.start == edit.end for edit in fix) and where.line != where.end_line:
        return None
    if finding.fix and start >= end and finding.safety is Safety.SAFE:
        return None
    location: Location = before.to_location(start, max(start, end))
    return dataclasses.replace(finding, location=location, fix=fix)
