"""Convert a file or a folder into another folder, or only show what would change."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchport.collector import pause_collection
from torchport.convert.diff import unified_diff
from torchport.convert.inventory import collect_inventory
from torchport.convert.obstacles import weigh_findings
from torchport.convert.output import Planned, write_output
from torchport.convert.project import list_convertible_files, summarize_findings
from torchport.convert.residue import Meaning
from torchport.convert.something_read import require_something_read
from torchport.convert.stages import Extras
from torchport.convert.trial import take_back_broken
from torchport.convert.workers import Converted, convert_files
from torchport.errors import TorchportError
from torchport.findings import Result
from torchport.rules import Style
from torchport.source.project import PRIVATE, display_name, iter_files, require_path
from torchport.source.settings import settings_of


def result_of(root: Path, style: Style, converted: list[Converted], **more: Any) -> Result:
    """The result of a conversion, with its diff and the list of changed files."""
    changed = [one for one in converted if one.changed]
    with pause_collection():
        weighed, obstacles = weigh_findings(converted)
    findings = tuple(finding for one in weighed for finding in one.findings)
    diff = b"".join(unified_diff(one.data, one.output, one.name) for one in changed)
    data = {
        "root": str(root),
        "style": style.value,
        "summary": summarize_findings(findings, len(converted)),
        "changed": [one.name for one in changed],
        "obstacles": obstacles,
        **collect_inventory(findings),
        "residue": _residue(converted),
        "diff": diff.decode("utf-8", "surrogateescape"),
        **more,
    }
    return Result("convert", findings, data, {one.name: one.digest for one in converted if one.digest})


def _residue(converted: list[Converted]) -> dict[str, Any]:
    """Every mention of CUDA that is left: how many of each meaning, and where."""
    mentions = [(one.name, mention) for one in converted for mention in one.residue]
    return {
        "counts": {kind.value: sum(mention.meaning is kind for _, mention in mentions) for kind in Meaning},
        "mentions": [
            {
                "path": name,
                "line": mention.line,
                "column": mention.column,
                "word": mention.word,
                "is": mention.meaning,
                **({"proof": mention.proof} if mention.proof else {}),
            }
            for name, mention in mentions
        ],
    }


def convert_project(
    root: Path, style: Style, extras: Extras | None = None, apart_from: Path | None = None
) -> list[Converted]:
    """Convert every source at or below `root` as the project's settings say; nothing is written.

    Raises TorchportError where nothing was read that an answer could be about.
    """
    settings = settings_of(root)
    if settings.ignore or root.is_file():
        extras = extras or Extras()
        ignore = extras.ignore | settings.ignore
        extras = dataclasses.replace(extras, ignore=ignore, asked_for=root.is_file())
    with pause_collection():
        converted = list(convert_files(list_convertible_files(root, settings, apart_from), style, extras))
    require_something_read(root, converted, apart_from)
    if extras is not None and extras.tries:
        return take_back_broken(root, converted, apart_from=apart_from)
    return converted


def preview_tree(source: Path, style: Style = Style.NPU, extras: Extras | None = None) -> Result:
    """What converting would do: the findings, and the diff as `data["diff"]`; nothing is written."""
    require_path(source)
    return result_of(source, style, convert_project(source, style, extras))


def convert_tree(
    source: Path,
    out: Path,
    style: Style = Style.NPU,
    extras: Extras | None = None,
    *,
    force: bool = False,
    beside: Callable[[Result], Mapping[str, Planned]] | None = None,
) -> Result:
    """Write a converted copy of the file or folder `source` into the folder `out`.

    Files that are not changed are copied with their permissions, links are copied as links; version control and
    caches are left out. `beside` gives further files for `out` by name. `out` may lie inside `source` and may hold an
    earlier conversion, which is overwritten unless somebody has changed it since (`force`: even then).
    Raises TorchportError where `source` does not exist, `out` is `source` or holds something else, or a file that
    would be overwritten was edited, deleted or made by somebody else; nothing is written then.
    """
    require_path(source)
    _check_out(source, out)
    plan: dict[str, Planned] = {}
    try:
        converted = {one.path: one for one in convert_project(source, style, extras, apart_from=out)}
        result = result_of(source, style, list(converted.values()), out=str(out))
        for path in iter_files(source, apart_from=out):
            one = converted.get(path)
            if one is not None and one.changed:
                plan[display_name(path, source)] = Planned(content=one.output, mode=path.stat().st_mode & 0o7777)
            elif path.is_symlink() or (path.is_file() and os.access(path, os.R_OK)):
                plan[display_name(path, source)] = Planned(source=path)
        if beside is not None:
            plan.update(beside(result))
    except OSError as error:
        raise TorchportError(f"cannot read {error.filename or source}: {error.strerror}") from error
    try:
        write_output(out, plan, result, force=force)
    except OSError as error:
        path = Path(error.filename or out)
        theirs = path.is_relative_to(source) and not path.is_relative_to(out)
        what = "read" if theirs else "write"
        raise TorchportError(f"cannot {what} {path}: {error.strerror}") from error
    return result


def _check_out(source: Path, out: Path) -> None:
    if out.exists() and out.samefile(source if source.is_dir() else source.parent):
        raise TorchportError(
            f"the output folder {out} is where the source is",
            hint="Give another folder, or use --write to convert in place.",
        )
    if out.exists() and not out.is_dir():
        raise TorchportError(f"the output {out} is a file", hint="Give a folder; it is made if it does not exist.")
    if source.is_dir() and out.is_dir() and not (out / PRIVATE).is_dir() and any(out.iterdir()):
        raise TorchportError(
            f"the output folder {out} holds files that torchport did not write", hint="Give a new or an empty folder."
        )
