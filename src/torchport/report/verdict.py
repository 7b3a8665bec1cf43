"""The answer to "can this be ported": in words, with the work that is left and the commands that come next."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from torchport.findings import Result, Severity
from torchport.report.diagnosis import judge_diagnosis
from torchport.report.inventory import describe_inventory
from torchport.report.wording import classify_verdict, format_count, format_sentence
from torchport.results.comparison import Comparison
from torchport.results.conversion import OldCode, Summary
from torchport.results.port import Port

_PYTHON = re.compile(r"python[\d.]*")
_SCRIPTS = (".py", ".ipynb")
_NAMED = 3  # files that cannot be imported, by name


def render_verdict(result: Result) -> str:
    """The answer for a terminal: what is automatic, what blocks, how much work is left, what to do next."""
    summary: Summary = result.data["summary"]
    done, left = summary.changes, summary.left
    _, text, _ = _judge_port(summary)
    old = summary.old.places > 0
    if old:
        text = _of_cuda(text)
    lines = [
        *([f"{format_old_code(summary.old)}."] if old else []),
        f"{'CUDA to NPU: ' if old else ''}{format_count(summary.files, 'file')}: "
        f"{_are(summary.automatic, 'change')} automatic, {summary.review} automatic but to be reviewed, "
        f"{_are(summary.decisions, '')} for you to decide, {summary.blockers} "
        f"{'blocks' if summary.blockers == 1 else 'block'} the port",
        f"{text}." + (f" {100 * done // (done + left)} % of the places are automatic." if done + left else ""),
    ]
    lines += describe_inventory(result.data)
    lines += [f"next: {step}" for step in list_next_commands(result)]
    return "\n".join(lines) + "\n"


def describe_npu_path(summary: Summary) -> str:
    """One line on the code for the NPU that a project has already; "" if there is none."""
    if not summary.npu_path:
        return ""
    first, more = summary.npu_path[0], len(summary.npu_path) - 1
    others = f" and {format_count(more, 'more file')}" if more else ""
    return (
        f"This project has an NPU path of its own (beside {first}{others}), which stays as it is: "
        "run it unconverted first; `torchport convert --ignore-npu-path` overrides\n"
    )


def judge_result(result: Result[Any]) -> tuple[str, str, str]:
    """ "good", "open" or "bad", one sentence that answers the question, and one that says on what grounds."""
    if result.command == "diagnose":
        return judge_diagnosis(result)
    data = result.data
    return _run(data) if isinstance(data, Port | Comparison) else _static(data.get("summary", Summary()))


def format_old_code(old: OldCode) -> str:
    """Code that is too old for the torch of today: how many places, who changes them, and what cannot be imported."""
    version, places, left = ".".join(old.torch.split(".")[:2]), old.places, old.left
    text = (
        f"Old torch: {format_count(places, 'place')} {'needs' if places == 1 else 'need'} a change for torch {version} "
        f"and the packages beside it, whatever the device; convert makes {old.changes}, {_are(left, '')} left to you"
    )
    stuck = old.unimportable
    if stuck:
        more = f" and {len(stuck) - _NAMED} more" if len(stuck) > _NAMED else ""
        text += (
            f"; {format_count(len(stuck), 'file')} cannot be imported as {'it is' if len(stuck) == 1 else 'they are'}: "
        )
        text += ", ".join(stuck[:_NAMED]) + more
    return text


def _static(summary: Summary) -> tuple[str, str, str]:
    """The old code comes first, as nothing runs before it is changed."""
    kind, text, grounds = _judge_port(summary)
    if not summary.old.places:
        return kind, text, grounds
    worse = kind if kind == "bad" else "bad" if summary.old.left else "open"
    return worse, format_old_code(summary.old), f"{_of_cuda(text)}. {grounds}".strip()


def _of_cuda(text: str) -> str:
    return f"Of CUDA, {text[:1].lower()}{text[1:]}"


def _judge_port(summary: Summary) -> tuple[str, str, str]:
    blockers, decisions, known = summary.blockers, summary.decisions, describe_npu_path(summary).rstrip()
    left = (
        f"{format_count(decisions, 'place')} more {'needs' if decisions == 1 else 'need'} a decision."
        if decisions
        else ""
    )
    if blockers:
        return (
            "bad",
            f"{format_count(blockers, 'blocker')} {'keeps' if blockers == 1 else 'keep'} this from running on an NPU",
            " ".join(filter(None, (left, known))),
        )
    if decisions:
        return "open", f"Nothing blocks the port; {format_count(decisions, 'decision')} left to you", known
    return "good", "Nothing blocks the port, and nothing needs a decision", known


def _run(data: Port | Comparison) -> tuple[str, str, str]:
    word = data.verdict
    if isinstance(data, Comparison):
        text = f"{word[:1].upper()}{word[1:]}"
    elif word in ("holds", "does not hold"):
        text = f"The port {word}"
    else:
        text = "Undecided whether the port holds"
    return classify_verdict(word), text, format_sentence(data.reason)


def list_next_commands(result: Result[Any]) -> Iterator[str]:
    """The commands that come next."""
    open_ = [
        finding
        for finding in result.findings
        if not finding.fix and finding.severity is not Severity.INFO and "part_of" not in finding.evidence
    ]
    blockers_first = sorted(open_, key=lambda finding: finding.severity is not Severity.ERROR)
    rows = [str(finding.evidence.get("row", finding.code)) for finding in blockers_first]
    for code in list(dict.fromkeys(rows))[:2]:
        yield f"torchport explain {code}" if re.fullmatch(r"[\w.-]+", code) else "torchport explain"
    if result.command == "analyze":
        root = str(result.data.get("root", ""))
        yield f"torchport convert {shlex.quote(root)} --diff"
        whole = f"torchport convert {shlex.quote(root)} -o {_beside(Path(root))}"
        yield f"torchport port {shlex.quote(root)}" if root.endswith(".py") else whole
    elif result.command == "convert":
        yield "torchport port SCRIPT -- ARGUMENTS   (with which it trains for a minute)"
    elif isinstance(result.data, Port) and result.data.verdict == "does not hold":
        yield build_rerun_command(result.data)


def _beside(root: Path) -> str:
    """A folder beside what was looked at; of `.`, whose name says nothing, beside the folder that it is."""
    here = root.name in ("", "..")
    name = root.resolve().name if here else root.stem if root.suffix in (".py", ".ipynb") else root.name
    return shlex.quote(str((root / ".." if here else root.parent) / f"{name}_npu"))


def _are(number: int, noun: str) -> str:
    return f"{format_count(number, noun) if noun else number} {'is' if number == 1 else 'are'}"


def build_rerun_command(data: Port) -> str:
    """The command that runs the port once more, after somebody has edited it."""
    words = list(data.command or (data.script or "SCRIPT",))
    if words[0] == "--":
        words = words[1:]
    if _PYTHON.fullmatch(PurePath(words[0]).name):
        words[0] = "python"  # whichever it was: the same environment is meant
        if len(words) > 1 and words[1].endswith(_SCRIPTS):
            words = words[1:]
    own = words[0].endswith(_SCRIPTS)  # after a script `--` says where its own arguments begin
    line = [words[0], *(["--", *words[1:]] if words[1:] else [])] if own else ["--", *words]
    return " ".join(["torchport port --from npu", *map(shlex.quote, line)])
