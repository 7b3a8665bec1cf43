"""Which findings block: those that a path from an entry point reaches without another way. The rest is optional.

Findings that belong together are one obstacle: a plugin with its build, its kernels and its imports; a package with its
line in a list and its imports. One of its findings speaks for all; the others say so in their evidence (`part_of`).
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from torchport.convert.inspection import LARGEST
from torchport.convert.plugins import Plugin, find_owners, find_plugins
from torchport.convert.workers import Converted
from torchport.findings import Finding, Severity
from torchport.results.conversion import APART, NEEDED, OPTIONAL, UNREACHED, Obstacle
from torchport.source.kinds import Kind, kind_of
from torchport.source.project import is_python
from torchport.source.reach import Reach, is_apart
from torchport.source.references import Use

_RANK = (NEEDED, OPTIONAL, APART, UNREACHED)
_WORD = re.compile(rb"\b[A-Za-z_]\w*(?:\.\w+)+\b")
_NAMING = frozenset({Kind.YAML, Kind.JSON, Kind.SETTINGS})
_NAMED = 2**20  # bytes of a configuration; a larger one is data
_EXTENSION = ("TP102", "TP402")
_KERNEL, _USED = "TP605", ("TP401", "TP405")
_ABOUT_DEVICE = re.compile(r"cuda|gpu|device|npu|fused|fast|avail", re.IGNORECASE)
_BUILT = " is built by this project from CUDA sources"

Place = tuple[str, int]


def weigh_findings(converted: Sequence[Converted]) -> tuple[list[Converted], list[Obstacle]]:
    """The files with the severity that their findings without a fix have for the project, and what is in its way.

    A single file, and a project without Python, keep theirs: nothing tells what reaches it.
    """
    errors = [one for file in converted for one in file.findings if _is_error(one)]
    python = {file.name: _content(file) for file in converted if _is_python(file)} if errors else {}
    if not errors:
        return list(converted), []
    weighing = _Weighing(converted, python)
    groups = _groups(errors, weighing)
    weighing.look_for_ways(groups, _words(converted, python))
    changed: dict[int, Finding] = {}
    obstacles = []
    for key, group in groups.items():
        obstacle, findings = weighing.weigh(key, group)
        if any(one.severity is Severity.ERROR for one in group):  # a build of unknown sources blocks nothing by itself
            obstacles.append(obstacle)
        changed.update({id(before): after for before, after in zip(group, findings, strict=True)})
    files = [
        dataclasses.replace(file, findings=tuple(changed.get(id(one), one) for one in file.findings))
        if any(id(one) in changed for one in file.findings)
        else file
        for file in converted
    ]
    return files, sorted(obstacles, key=lambda one: _RANK.index(one.state))


def _is_error(finding: Finding) -> bool:
    """Whether it may block; a build whose sources are not known goes with what it builds."""
    if finding.fix or finding.location is None:
        return False
    build = finding.code == "TP402" and finding.severity is Severity.WARNING
    return build or finding.severity is Severity.ERROR


def _is_python(file: Converted) -> bool:
    return bool(file.digest) and (kind_of(file.name) is Kind.PYTHON or is_python(file.path))


def _content(file: Converted) -> bytes:
    try:
        data = file.data or file.path.read_bytes()
    except OSError:
        return b""
    return data if len(data) <= LARGEST else b""


def _groups(errors: Iterable[Finding], weighing: _Weighing) -> dict[tuple[str, str], list[Finding]]:
    """The findings by what they are about."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for one in errors:
        groups.setdefault(weighing.find_key(one), []).append(one)
    return groups


class _Weighing:
    def __init__(self, converted: Sequence[Converted], python: Mapping[str, bytes]) -> None:
        self._python = python
        native = {one.name: _content(one) for one in converted if kind_of(one.name) is Kind.CUDA_SOURCE}
        self._reach: Reach | None = None
        self._plugins = _name_alike(find_plugins(python))
        self._owners = find_owners(self._plugins, native)

    def look_for_ways(self, groups: Mapping[tuple[str, str], list[Finding]], named: set[str]) -> None:
        """Find what leads to the files with these findings, and to those that name what they are about."""
        if not self._python:
            return
        names = {name for kind, name in groups if kind in ("plugin", "package") and name.isidentifier()}
        names |= {one.module for one in self._plugins if one.name in names and one.module.isidentifier()}
        words = re.compile(rb"\b(?:%b)\b" % b"|".join(re.escape(name.encode()) for name in sorted(names)))
        asked = {_path(one) for group in groups.values() for one in group} | {one.path for one in self._plugins}
        asked |= {path for path, data in self._python.items() if names and words.search(data)}
        self._reach = Reach(self._python, named, asked)

    def find_key(self, finding: Finding) -> tuple[str, str]:
        """The kind and the name of what a finding is about."""
        where = finding.location
        assert where is not None
        if finding.code == _KERNEL:
            owner = self._owners.get(where.path)
            return ("plugin", owner.name) if owner else ("sources", str(PurePosixPath(where.path).parent))
        if finding.code in _EXTENSION:
            name = finding.message.removesuffix(_BUILT) if finding.message.endswith(_BUILT) else ""
            near = sorted((abs(one.line - where.line), one.name) for one in self._plugins if one.path == where.path)
            if name or near:
                alike = next((one.name for one in self._plugins if one.module == name), name)
                return "plugin", alike or near[0][1]
        if "library" in finding.evidence:
            return "package", str(finding.evidence["library"])
        line = "" if finding.code in _EXTENSION else f":{where.line}"
        return "place", f"{where.path}{line} {finding.message}"

    def weigh(self, key: tuple[str, str], group: list[Finding]) -> tuple[Obstacle, list[Finding]]:
        """The obstacle, and its findings with the severity that they have."""
        kind, name = key
        if kind == "plugin":
            return self._weigh_plugin(name, group)
        if kind == "package":
            return self._weigh_package(name, group)
        if kind == "sources":
            state, place = (APART, _place(group[0])) if is_apart(_path(group[0])) else (UNREACHED, _place(group[0]))
            if self._reach is None:
                state = NEEDED
            why = _why(state, place, "") if state is not UNREACHED else "what builds these sources was not found"
            return self._spoken("CUDA sources", name, state, place, why, group)
        use = self._locate(group[0])
        state, place = self._judge([use])
        return self._spoken("", group[0].message, state, place, self._reason(state, place), group)

    def _weigh_plugin(self, name: str, group: list[Finding]) -> tuple[Obstacle, list[Finding]]:
        plugins = [one for one in self._plugins if one.name == name]
        uses = [use for plugin in plugins for use in self._uses(plugin)]
        if not plugins and self._reach is not None:
            uses = self._reach.find_uses(name) or [self._locate(one) for one in group if one.code != _KERNEL]
        state, place = self._judge(uses) if uses else (UNREACHED, _place(group[0]))
        why = self._reason(state, place)
        if state == UNREACHED and not uses:
            why = "nothing in the project imports it by its name"
        by_force = [one for one in plugins if one.installed and "/" not in one.path and not self._is_guarded(one)]
        if state != NEEDED and by_force:
            why += f"; {by_force[0].path}:{by_force[0].line} builds it unconditionally: leave it out of ext_modules"
        severity = None if state == NEEDED else Severity.WARNING if by_force else Severity.INFO
        at = f"{by_force[0].path}:{by_force[0].line}" if severity is Severity.WARNING else ""
        return self._spoken("plugin", name, state, place, why, group, severity, at)

    def _uses(self, plugin: Plugin) -> list[Use]:
        assert self._reach is not None
        if not plugin.installed:
            return [self._reach.locate(plugin.path, plugin.line)]
        return self._reach.find_uses(plugin.module or plugin.name)

    def _is_guarded(self, plugin: Plugin) -> bool:
        assert self._reach is not None
        return bool(self._reach.locate(plugin.path, plugin.line).guard)

    def _weigh_package(self, name: str, group: list[Finding]) -> tuple[Obstacle, list[Finding]]:
        imports = [one for one in group if one.code in _USED]
        if imports:
            state, place = self._judge([self._locate(one) for one in imports])
            return self._spoken("package", name, state, place, self._reason(state, place), group)
        uses = self._reach.find_uses(name) if self._reach is not None else []
        place = _place(group[0])
        if uses:
            state, place = self._judge(uses)
            if state != NEEDED:
                return self._spoken("package", name, state, place, self._reason(state, place), group, Severity.WARNING)
        why = f"{place} imports it in a function, which cannot run" if uses else "it is listed, and nothing imports it"
        return self._spoken("package", name, OPTIONAL, place, why, group, Severity.WARNING)

    def _locate(self, finding: Finding) -> Use:
        where = finding.location
        assert where is not None
        return Use(where.path, "", where.line, 0) if self._reach is None else self._reach.locate(where.path, where.line)

    def _judge(self, uses: Iterable[Use]) -> tuple[str, str]:
        """The worst state of the uses, and the place that says why."""
        if self._reach is None:
            return NEEDED, next((f"{use.path}:{use.line}" for use in uses), "")
        states = {"needed": NEEDED, "optional": OPTIONAL, "apart": APART, "unreached": UNREACHED}
        judged = [self._reach.judge_use(use) for use in uses]
        found = [(states[state], place) for state, place in judged]
        return min(found, key=lambda one: _RANK.index(one[0]), default=(UNREACHED, ""))

    def _reason(self, state: str, place: str) -> str:
        return _why(state, place, self._line(place))

    def _line(self, place: str) -> str:
        path, _, line = place.rpartition(":")
        lines = self._python.get(path, b"").splitlines()
        number = int(line or 0)
        return lines[number - 1].decode("utf-8", "replace").strip() if 0 < number <= len(lines) else ""

    def _spoken(
        self,
        kind: str,
        name: str,
        state: str,
        place: str,
        why: str,
        group: list[Finding],
        severity: Severity | None = None,
        at: str = "",
    ) -> tuple[Obstacle, list[Finding]]:
        """The obstacle and its findings, of which the nearest to `place` speaks for all, or the one `at` a line that
        alone asks for work."""
        work = describe_work(group)
        if severity is None:
            severity = {NEEDED: Severity.ERROR, APART: Severity.INFO}.get(state, Severity.WARNING)
            if state == OPTIONAL and (kind == "package" or group[0].code in _EXTENSION):
                severity = Severity.INFO
        chosen = min(group, key=lambda one: (_place(one) != (at or place), one.code == _KERNEL, one.code != "TP402"))
        what = f"the {kind} {name}" if kind else name
        extra = f" ({work})" if work else ""
        found = []
        for one in group:
            evidence = {**one.evidence, "reach": state}
            limit = Severity.INFO if at and _place(one) != at and one.code != _KERNEL else severity
            least = max(limit, one.severity, key=list(Severity).index)
            if one is not chosen:
                found.append(dataclasses.replace(one, severity=least, evidence={**evidence, "part_of": name}))
                continue
            said = one.message if state == NEEDED and len(group) == 1 else f"{what}{extra}: {why}"
            if not kind and state != NEEDED:
                said = f"{one.message}; {why}"
            found.append(dataclasses.replace(one, severity=least, message=said, evidence=evidence))
        return Obstacle(name, kind or "place", state, place or _place(chosen), why, work, len(group)), found


def _name_alike(plugins: list[Plugin]) -> list[Plugin]:
    """The plugins, with one name for all that one folder builds from the same sources, at install or at run time."""
    names: dict[tuple[str, tuple[str, ...]], str] = {}
    found = []
    for one in plugins:
        files = tuple(sorted(PurePosixPath(source).name for source in one.sources))
        name = names.setdefault((str(PurePosixPath(one.path).parent), files), one.name) if files else one.name
        found.append(dataclasses.replace(one, name=name, module=one.name))
    return found


def describe_work(group: Iterable[Finding]) -> str:
    """How much there is to be written anew, and what that rests on: kernels, their lines, what they use of a GPU."""
    kernels = [one.evidence for one in group if one.code == _KERNEL and "effort" in one.evidence]
    if not kernels:
        return ""
    classes = Counter(str(one["effort"]) for one in kernels)
    uses = dict.fromkeys(use for one in kernels for use in one["uses"])
    lines = sum(int(one["lines"]) for one in kernels)
    sizes = ", ".join(f"{classes[size]} {size}" for size in ("large", "medium", "small") if classes[size])
    count = f"{len(kernels)} kernel{'' if len(kernels) == 1 else 's'}, {lines:,} lines"
    return f"{count}: {sizes}" + (f"; they use {', '.join(uses)}" if uses else "")


def _why(state: str, place: str, line: str) -> str:
    if state == NEEDED:
        return f"{place} needs it, without another way"
    if state == OPTIONAL:
        if line.startswith("except"):
            return f"optional: {place} is reached after an error alone"
        lost = "the feature, or speed" if line.startswith(("try", "with")) else "speed"
        if re.match(r"(?:el)?if [\w.]+\.\w+:", line) and not _ABOUT_DEVICE.search(line):
            lost = "what the option brings"
        return f"optional: {place} goes on without it, lost is {lost}"
    if state == APART:
        return "only tests, benchmarks, examples or CI need it"
    return "nothing that starts here leads to it"


def _words(converted: Sequence[Converted], python: Mapping[str, bytes]) -> set[str]:
    """Dotted words of configurations that begin as the project's modules do."""
    tops = {name.partition("/")[0].removesuffix(".py") for name in python}
    found: set[str] = set()
    for file in converted:
        if kind_of(file.name) in _NAMING:
            data = _content(file)
            words = _WORD.findall(data) if len(data) <= _NAMED else []
            found.update(word for one in words if (word := one.decode()).partition(".")[0] in tops)
    return found


def _path(finding: Finding) -> str:
    return finding.location.path if finding.location else ""


def _place(finding: Finding) -> str:
    return f"{finding.location.path}:{finding.location.line}" if finding.location else ""
