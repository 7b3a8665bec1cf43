"""Rewrite a CUDA script or project for the NPU.

examples:
  torchport convert train.py --diff              show what would change
  torchport convert project/ -o project_npu/     write a converted copy
  torchport convert project/ --write             convert in place
  torchport convert project/ --undo              take the last conversion in place back
  torchport convert project/ -o out/ --layout msft
                                                 the folder and tables that other Ascend tools write

Only what is proven to be torch is rewritten. What is not becomes a finding, with what to do about it. Nothing of the
project is imported or run. The exit code is 1 where a finding needs a decision or blocks the port.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from torchport.convert import convert_tree, preview_tree, undo_tree, write_tree
from torchport.errors import TorchportError
from torchport.findings import Result, write_atomically
from torchport.report import render
from torchport.report.html import page
from torchport.report.tables import tables
from torchport.rules import Style


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help="script or folder")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="write a converted copy here")
    action.add_argument("--diff", action="store_true", help="print the changes as a patch, write nothing")
    action.add_argument("--write", action="store_true", help="convert in place")
    action.add_argument("--undo", action="store_true", help="take the last --write back")
    parser.add_argument("--html", type=Path, metavar="FILE", help="store a report as one HTML file here")
    parser.add_argument(
        "--layout",
        choices=["plain", "msft"],
        default="plain",
        help="msft: write to FOLDER/<name>_msft, with change_list.csv and the other tables beside the files",
    )
    parser.add_argument(
        "--style",
        choices=[style.value for style in Style],
        default=Style.NPU.value,
        help="npu: torch.npu and npu:0 (default); agnostic: torch.accelerator, still runs on CUDA",
    )


def run(arguments: argparse.Namespace) -> int:
    style = Style(arguments.style)
    if arguments.undo:
        return _undo(arguments)
    if arguments.layout == "msft" and not arguments.output:
        raise TorchportError("--layout msft needs an output folder", hint="Add -o FOLDER.")
    if arguments.output:
        result = _write_copy(arguments, style)
    else:
        result = (preview_tree if arguments.diff else write_tree)(arguments.path, style)
    if arguments.json:
        print(result.text(), end="")
    elif arguments.diff:
        sys.stdout.flush()
        sys.stdout.buffer.write(result.data["diff"].encode("utf-8", "surrogateescape"))
    if arguments.html:
        write_atomically(arguments.html, page(result).encode("utf-8", "backslashreplace"))
    messages = sys.stderr if arguments.json or arguments.diff else sys.stdout
    if not arguments.quiet:
        print(_text(result, arguments), end="", file=messages)
    return exit_code(result)


def _write_copy(arguments: argparse.Namespace, style: Style) -> Result:
    if arguments.layout == "plain":
        return convert_tree(arguments.path, arguments.output, style)
    folder = arguments.output / f"{arguments.path.resolve().stem}_msft"
    result = convert_tree(arguments.path, folder, style)
    for name, text in tables(result).items():
        write_atomically(folder / name, text.encode("utf-8", "backslashreplace"))
    return result


def _undo(arguments: argparse.Namespace) -> int:
    restored = undo_tree(arguments.path)
    if arguments.json:
        print(Result("convert --undo", data={"restored": restored}).text(), end="")
    elif not arguments.quiet:
        print(f"restored {len(restored)} files: {', '.join(restored)}")
    return 0


def exit_code(result: Result) -> int:
    """3 for a bug of ours, 1 where something is left to do, else 0."""
    if any(finding.code == "TP903" for finding in result.findings):
        return 3
    summary = result.data["summary"]
    return 1 if summary["decisions"] or summary["blockers"] else 0


def _text(result: Result, arguments: argparse.Namespace) -> str:
    summary = result.data["summary"]
    changed = result.data["changed"]
    where = f" in {arguments.output}" if arguments.output else " (nothing written)" if arguments.diff else ""
    return (
        render(result.findings)
        + f"{len(changed)} of {summary['files']} files changed{where}: {summary['automatic']} safe changes, "
        + f"{summary['review']} to review, {summary['decisions']} decisions left, {summary['blockers']} blockers\n"
    )
