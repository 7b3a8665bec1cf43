"""Rewrite a CUDA script or project for the NPU.

examples:
  torchport convert train.py --diff              show what would change
  torchport convert project/ -o project_npu/     write a converted copy
  torchport convert project/ --write             convert in place
  torchport convert project/ --undo              take the last conversion in place back
  torchport convert project/ -o out/ --distributed --main train.py --model net
                                                 from one device to several, with a launcher
  torchport convert project/ -o out/ --rule my_rules.json
                                                 your own renames first
  torchport convert train.py -o out/ --audit audit.jsonl
                                                 and say what `torchport run --audit` saw that this did not
  torchport convert -i project/ -o out/ -v 2.8.0 distributed -m train.py -t net
                                                 as other Ascend tools are called: writes out/project_msft_multi

Only what is proven to be torch is rewritten. What is not becomes a finding, with what to do about it; so does what
torch_npu refuses or computes otherwise although nothing in it names CUDA (TP702, TP721 to TP731). Nothing of the
project is imported or run. `[tool.torchport]` in its pyproject.toml leaves out codes and paths (`torchport check -h`).
An output folder is written again, but never over what somebody has changed there since (--force does). The exit code
is 1 where a finding needs a decision or blocks the port.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from torchport import audit
from torchport.convert import Extras, convert_tree, preview_tree, undo_tree, write_tree
from torchport.convert.audited import with_audit
from torchport.convert.launcher import LAUNCHER, main_file, plan_launcher
from torchport.convert.output import Planned
from torchport.convert.project import for_people, format_count
from torchport.errors import TorchportError
from torchport.findings import Finding, Result, write_atomically
from torchport.report import format_old_code, render_findings
from torchport.report.html import render_page
from torchport.report.tables import render_csv_tables
from torchport.report.verdict import describe_npu_path
from torchport.results.conversion import Summary
from torchport.rules import Style
from torchport.rules.custom import CustomRules
from torchport.source.project import require_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", nargs="?", type=Path, metavar="PATH", help="script or folder")
    parser.add_argument("mode", nargs="?", metavar="distributed", help="the same as --distributed")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="write a converted copy here")
    action.add_argument("--diff", action="store_true", help="print the changes as a patch, write nothing")
    action.add_argument("--write", action="store_true", help="convert in place")
    action.add_argument("--undo", action="store_true", help="take the last --write back")
    parser.add_argument(
        "--force", action="store_true", help="with -o: overwrite what was edited there since it was written"
    )
    parser.add_argument("--verbose", action="store_true", help="list every note, and words that are no devices")
    parser.add_argument("--html", type=Path, metavar="FILE", help="store a report as one HTML file here")
    parser.add_argument(
        "--layout",
        choices=["plain", "msft"],
        help="msft: write to FOLDER/<name>_msft, with change_list.csv and the other tables beside the files",
    )
    parser.add_argument(
        "--style",
        choices=[style.value for style in Style],
        default=Style.NPU.value,
        help="npu: torch.npu and npu:0 (default); agnostic: torch.accelerator, still runs on CUDA",
    )
    parser.add_argument("-r", "--rule", type=Path, metavar="FILE", help="JSON with rules of your own")
    parser.add_argument("--audit", type=Path, metavar="FILE", help="what `torchport run --audit` wrote")
    parser.add_argument(
        "--assume-modules",
        action="store_true",
        help="take what libraries make of which nothing is known for torch modules: their .cuda() becomes .npu()",
    )
    parser.add_argument(
        "--ignore-npu-path",
        action="store_true",
        help="convert code as well that stands beside a branch, class or file for the NPU",
    )
    parser.add_argument(
        "--try",
        dest="tries",
        action="store_true",
        help="RUN the project's code: import each changed file on the virtual NPU, and collect its tests, before and "
        "after; a file that breaks is left as it was",
    )
    several = parser.add_argument_group("from one device to several")
    several.add_argument("--distributed", action="store_true", help="one process per device, with torchrun")
    several.add_argument("-m", "--main", type=Path, metavar="FILE", help="the script that is started")
    several.add_argument(
        "-t", "--model", "--target_model", metavar="NAME", help="the variable of its model (default: model)"
    )
    other = parser.add_argument_group("options of other Ascend tools")
    other.add_argument("-i", "--input", type=Path, metavar="PATH", help="PATH; implies --layout msft")
    other.add_argument("-v", "--version", metavar="X.Y.Z", help="not needed: the result fits every torch")
    other.add_argument(
        "-s", "--specify-device", action="store_true", help="not needed: ASCEND_RT_VISIBLE_DEVICES does it"
    )
    other.add_argument(
        "-sim", "--similar", action="store_true", help="not needed: near equivalents are made and marked for review"
    )


def run_command(arguments: argparse.Namespace) -> int:
    style = Style(arguments.style)
    _arrange(arguments)
    if arguments.undo:
        return _undo(arguments)
    if arguments.layout == "msft" and not arguments.output:
        raise TorchportError("--layout msft needs an output folder", hint="Add -o FOLDER.")
    extras = _extras(arguments)
    if arguments.output:
        result = _write_copy(arguments, style, extras)
    else:
        result = (preview_tree if arguments.diff else write_tree)(arguments.path, style, extras)
    if arguments.audit:
        result = with_audit(result, _events(arguments.audit), arguments.path)
    if arguments.json:
        print(result.text(), end="")
    elif arguments.diff:
        sys.stdout.flush()
        sys.stdout.buffer.write(result.data["diff"].encode("utf-8", "surrogateescape"))
    if arguments.html:
        write_atomically(
            arguments.html,
            render_page(dataclasses.replace(result, findings=_said(result, arguments))).encode(
                "utf-8", "backslashreplace"
            ),
        )
    messages = sys.stderr if arguments.json or arguments.diff else sys.stdout
    if not arguments.quiet:
        print(_text(result, arguments), end="", file=messages)
    return exit_code(result)


def _arrange(arguments: argparse.Namespace) -> None:
    """Bring the words of other tools' command lines to where ours are."""
    if arguments.input is not None:
        if arguments.path is not None and str(arguments.path) == "distributed" and arguments.mode is None:
            arguments.path, arguments.mode = None, "distributed"
        if arguments.path is not None:
            raise TorchportError(f"the project is given twice: {arguments.input} and {arguments.path}")
        arguments.path, arguments.layout = arguments.input, arguments.layout or "msft"
    if arguments.path is None:
        raise TorchportError("what is to be converted is not given", hint="Give a script or a folder.")
    if arguments.mode not in (None, "distributed"):
        raise TorchportError(f"{arguments.mode!r} is one path too many", hint="Convert one after the other.")
    arguments.distributed = arguments.distributed or arguments.mode is not None
    require_path(arguments.path)


def _events(path: Path) -> list[audit.Event]:
    try:
        return audit.read_events(path)
    except (OSError, ValueError) as error:
        raise TorchportError(f"the audit cannot be read: {error}", hint="`torchport run --audit` makes one.") from error


def _extras(arguments: argparse.Namespace) -> Extras:
    """The stages before the conversion, and the choices of the user."""
    chosen = Extras(
        assume_modules=arguments.assume_modules, ignore_npu_path=arguments.ignore_npu_path, tries=arguments.tries
    )
    support = arguments.layout == "msft"  # its tables list what torch_npu does not compute
    if not arguments.distributed:
        if arguments.main or arguments.model:
            raise TorchportError("--main and --model belong to --distributed", hint="Add --distributed.")
        custom = CustomRules.from_file(arguments.rule) if arguments.rule else None
        return dataclasses.replace(chosen, custom=custom, support=support)
    if arguments.write:
        raise TorchportError(
            "--distributed adds a launcher to the project, so it is not done in place", hint="Use -o FOLDER."
        )
    if arguments.main is None and not arguments.path.is_file():
        raise TorchportError("--distributed needs to know the script that is started", hint="Add --main FILE.")
    custom = CustomRules.from_file(arguments.rule) if arguments.rule else None
    main = main_file(arguments.path, arguments.main or arguments.path)
    model = arguments.model or "model"
    return dataclasses.replace(chosen, main=main, model=model, custom=custom, support=support)


def _write_copy(arguments: argparse.Namespace, style: Style, extras: Extras | None) -> Result:
    folder = arguments.output
    if arguments.layout == "msft":
        suffix = "_msft_multi" if arguments.distributed else "_msft"
        source = arguments.path.resolve()
        folder = arguments.output / f"{source.name if source.is_dir() else source.stem}{suffix}"

    def beside(result: Result) -> dict[str, Planned]:
        more: dict[str, Planned] = {}
        if arguments.layout == "msft":
            texts = {**render_csv_tables(result), "msFmkTranspltlog.txt": _text(result, arguments)}
            more = {name: Planned(content=text.encode("utf-8", "backslashreplace")) for name, text in texts.items()}
        if extras is not None and extras.main:
            more[LAUNCHER] = plan_launcher(extras.main)
        return more

    return convert_tree(arguments.path, folder, style, extras, force=arguments.force, beside=beside)


def _undo(arguments: argparse.Namespace) -> int:
    restored = undo_tree(arguments.path)
    if arguments.json:
        print(Result("convert --undo", data={"restored": restored}).text(), end="")
    elif not arguments.quiet:
        print(f"restored {format_count(len(restored), 'file')}: {', '.join(restored)}")
    return 0


def exit_code(result: Result) -> int:
    """3 for a bug of ours, 1 where something is left to do, else 0."""
    if any(finding.code == "TP903" for finding in result.findings):
        return 3
    summary: Summary = result.data["summary"]
    return 1 if summary.left or summary.old.left else 0


def _said(result: Result, arguments: argparse.Namespace) -> tuple[Finding, ...]:
    return for_people(result.findings, all_=arguments.verbose)


def _text(result: Result, arguments: argparse.Namespace) -> str:
    summary: Summary = result.data["summary"]
    changed = result.data["changed"]
    where = f" in {arguments.output}" if arguments.output else " (nothing written)" if arguments.diff else ""
    return (
        describe_npu_path(summary)
        + render_findings(_said(result, arguments))
        + (f"{format_old_code(summary.old)}\n" if summary.old.places else "")
        + f"{len(changed)} of {format_count(summary.files, 'file')} changed{where}: "
        + f"{format_count(summary.automatic, 'safe change')}, {summary.review} to review, "
        + f"{format_count(summary.decisions, 'decision')} left, {format_count(summary.blockers, 'blocker')}\n"
    )
