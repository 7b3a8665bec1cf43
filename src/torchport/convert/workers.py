"""Convert the files of a project: what they know of each other first, then each by itself (`pool`)."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchport.convert.inspection import LARGEST, about_file, report_unreadable
from torchport.convert.pool import Pool
from torchport.convert.residue import Mention, find_residue
from torchport.convert.source import convert_source
from torchport.convert.stages import Extras, convert_in_stages
from torchport.convert.values import SPELLS, Joined, Survey, find_readers, survey_source
from torchport.findings import Edit, Finding, hash_bytes
from torchport.knowledge.arguments import load_role
from torchport.rules import Style
from torchport.source.defined import find_defined_names
from torchport.source.definitions import Definitions, Known, collect_definitions, find_provided_modules
from torchport.source.imports import Imports
from torchport.source.kinds import Kind, kind_of
from torchport.source.links import Key
from torchport.source.outside import Outside
from torchport.source.siblings import find_paired_files

SECONDS_PER_FILE = 20.0  # of CPU time; a machine that is busy elsewhere is no reason to give a file up
_ROUNDS = 5  # files that know a value lead to others; more are never needed by people
_DEFINING = frozenset({Kind.PYTHON, Kind.YAML, Kind.SETTINGS})  # a key of JSON may be anybody's data
_LARGEST_WITH_NAMES = 2**20  # bytes; a larger one is data
_ATTRIBUTE = re.compile(rb"\.([A-Za-z_]\w*)")


@dataclasses.dataclass(frozen=True, slots=True)
class Converted:
    """One file of a project; `data` and `output` only where they differ, `digest` always."""

    path: Path
    name: str
    digest: str
    findings: tuple[Finding, ...] = ()
    data: bytes = b""
    output: bytes = b""
    edits: tuple[Edit, ...] = ()
    residue: tuple[Mention, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.edits)


def convert_file(
    path: Path, name: str, style: Style, project: Definitions | None = None, extras: Extras | None = None
) -> Converted:
    """Read and convert one file. One that cannot be read is a finding (TP900)."""
    try:
        data = _read(path)
    except OSError as error:
        return Converted(path, name, "", (about_file("TP900", name, f"the file cannot be read: {error.strerror}"),))
    extras = extras or Extras()
    conversion = convert_in_stages(
        data, name, extras, project, lambda data: convert_source(data, name, style, project, extras.ignore)
    )
    if not conversion.findings and (extras.asked_for or kind_of(name) is Kind.NOTEBOOK):
        conversion = dataclasses.replace(conversion, findings=report_unreadable(data, name))
    done = Converted(
        path,
        name,
        hash_bytes(data),
        conversion.findings,
        residue=find_residue(conversion.output, name, conversion.left, project) if len(data) <= LARGEST else (),
    )
    if conversion.output == data:
        return done
    return dataclasses.replace(done, data=data, output=conversion.output, edits=conversion.edits)


def _read(path: Path) -> bytes:
    """The content of a regular file; reading a pipe would wait for somebody to write. Raises OSError."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise OSError(errno.EACCES, "its folder may not be looked into")
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return path.read_bytes()


def convert_files(
    files: Sequence[tuple[Path, str]],
    style: Style,
    extras: Extras | None = None,
    *,
    seconds: float = SECONDS_PER_FILE,
    processes: int | None = None,
) -> Iterator[Converted]:
    """Convert (path, name) pairs; the results come in the same order, whatever happens to a file.

    A file may take `seconds` of CPU time, rounded up to whole ones.
    """
    project = _project(files, extras or Extras())
    with Pool(project, seconds, min(processes or os.cpu_count() or 1, max(len(files), 1))) as pool:
        project.values.update(_values(files, project, pool))
        yield from pool.run(files, _Convert(style, extras), _given_up)


def _given_up(path: Path, name: str, finding: Finding) -> Converted:
    return Converted(path, name, "", (finding,))


@dataclasses.dataclass(frozen=True, slots=True)
class _Convert:
    """What a worker does with a file that is converted."""

    style: Style
    extras: Extras | None

    def __call__(self, path: Path, name: str, project: Definitions) -> Converted:
        return convert_file(path, name, self.style, project, self.extras)


def _values(files: Sequence[tuple[Path, str]], project: Definitions, pool: Pool) -> Mapping[str, Mapping[Key, Known]]:
    """What the files know of each other's devices and backends."""
    if len(files) < 2:
        return {}
    texts = {name: path for path, name in files if kind_of(name) is Kind.PYTHON}
    waiting = {name for name in texts if SPELLS.search(_content(texts[name]))}
    done: dict[str, Survey] = {}
    for _ in range(_ROUNDS):
        chosen = [(texts[name], name) for name in sorted(waiting)]
        for one in pool.run(chosen, survey_file, lambda path, name, finding: Survey(name)):
            done[one.path] = one
        joined = Joined(done.values())
        asked = find_readers(joined.find_spelled_keys(), project.importers)
        options = _plain(asked.pop("", set()))
        waiting = {
            name
            for name, path in texts.items()
            if name not in done and _may_know(_content(path), asked.get(name, set()), options)
        }
        if not waiting:
            break
    return {name: known for name in done if (known := joined.find_known_values(name))}


def _plain(options: set[str]) -> set[bytes]:
    """The names of options that do not say by themselves that they are devices or backends."""
    return {
        name.encode()
        for name in options
        if not any(load_role(kind).names.match(name) for kind in ("device", "backend"))
    }


def _may_know(data: bytes, words: set[str], options: set[bytes]) -> bool:
    """Whether a file names one of the words (an empty one: in any case) or imports all there are, or has an option."""
    if "" in words:
        return True
    if options and not options.isdisjoint(_ATTRIBUTE.findall(data)):
        return True
    names = b"|".join(re.escape(word.encode()) for word in words)
    return bool(words) and re.search(rb"\b(?:%b)\b|\bimport[ \t]+\*" % names, data) is not None


def _content(path: Path) -> bytes:
    with contextlib.suppress(OSError):  # converting it will say why it cannot be read
        if path.stat().st_size <= LARGEST:
            return _read(path)
    return b""


def survey_file(path: Path, name: str, project: Definitions) -> Survey:
    """Look at one file; one that cannot be read knows nothing."""
    return survey_source(name, _content(path), project)


def _project(files: Sequence[tuple[Path, str]], extras: Extras) -> Definitions:
    """What each file has to know of the others; of a file alone, where others may be found."""
    if not files:
        return Definitions()
    path, name = files[0]
    root = path.resolve().parents[name.count("/")]
    if len(files) == 1:
        return Definitions(
            outside=Outside(root, {}), assume_modules=extras.assume_modules, ignores_npu=extras.ignore_npu_path
        )
    found, imports = _definitions(files, root.name)
    paired = find_paired_files(name for _, name in files if kind_of(name) is Kind.PYTHON)
    return dataclasses.replace(
        found,
        leading=imports.find_cuda_importers(paired),
        targets=imports.list_imported_files(),
        modules=imports.collect_name_parts(),
        importers=imports.find_importers(),
        naming_npu=frozenset(imports.naming_npu),
        defined=find_defined_names(_with_names(files)),
        outside=Outside(root, imports.map_top_folders()),
        paired_files=paired,
        assume_modules=extras.assume_modules,
        ignores_npu=extras.ignore_npu_path,
    )


def _definitions(files: Sequence[tuple[Path, str]], folder: str) -> tuple[Definitions, Imports]:
    imports = Imports()

    def python() -> Iterator[bytes]:
        for path, name in files:
            if kind_of(name) is Kind.PYTHON:
                with contextlib.suppress(OSError):  # converting it will say why it cannot be read
                    if path.stat().st_size <= LARGEST:
                        data = _read(path)
                        imports.add_file(name, data)
                        yield data

    own = find_provided_modules((name for _, name in files if kind_of(name) is Kind.PYTHON), folder)
    return collect_definitions(python(), own), imports


def _with_names(files: Sequence[tuple[Path, str]]) -> Iterator[tuple[str, bytes]]:
    """The files in which a project may define names: code and configurations."""
    for path, name in files:
        if kind_of(name) in _DEFINING:
            with contextlib.suppress(OSError):
                if path.stat().st_size <= _LARGEST_WITH_NAMES:
                    yield name, _read(path)
