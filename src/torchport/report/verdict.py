"""The answer to "can this be ported": in words, with the work that is left and the commands that come next."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from torchport.findings import Result, Severity


def render_verdict(result: Result) -> str:
    """The answer for a terminal: what is automatic, what blocks, how much work is left, what to do next."""
    summary = result.data["summary"]
    done, left = summary["automatic"] + summary["review"], summary["decisions"] + summary["blockers"]
    _, text, _ = judge(result)
    lines = [
        f"{summary['files']} files: {summary['automatic']} changes are automatic, {summary['review']} automatic but to "
        f"be reviewed, {summary['decisions']} are decisions for you, {summary['blockers']} block the port",
        f"{text}."
        + (f" {100 * done // (done + left)} % of the places are automatic." if done + left else ""),
    ]
    blocking = Counter(
        finding.code for finding in result.findings if finding.severity is Severity.ERROR and not finding.fix
    )
    if blocking:
        lines.append("blocks: " + ", ".join(f"{code} ({count})" for code, count in blocking.most_common()))
    if left or summary["review"]:
        lines.append(f"work left, as an order of magnitude: {effort(summary)}")
    lines += [f"next: {step}" for step in steps(result)]
    return "\n".join(lines) + "\n"


def judge(result: Result) -> tuple[str, str, str]:
    """ "good", "open" or "bad", one sentence that answers the question, and one that says on what grounds."""
    return _run(result) if "holds" in result.data else _static(result.data.get("summary", {}))


def effort(summary: Mapping[str, Any]) -> str:
    """The estimate of the work that is left, as hours from and to."""
    low, high = (float(hours) for hours in summary["effort_hours"])
    words = [f"{hours:.0f}" if hours >= 10 else f"{hours:.2g}" for hours in (low, high)]
    return f"{'–'.join(words)} h" if high else "none"


def _static(summary: dict[str, Any]) -> tuple[str, str, str]:
    blockers, decisions = summary.get("blockers", 0), summary.get("decisions", 0)
    left = (
        f"{_count(decisions, 'place')} more {'needs' if decisions == 1 else 'need'} a decision."
        if decisions
        else ""
    )
    if blockers:
        return (
            "bad",
            f"{_count(blockers, 'place')} {'keeps' if blockers == 1 else 'keep'} this from running on an NPU",
            left,
        )
    if decisions:
        return "open", f"Nothing blocks the port; {_count(decisions, 'decision')} left to you", ""
    return "good", "Nothing blocks the port, and nothing needs a decision", ""


def _run(result: Result) -> tuple[str, str, str]:
    data = result.data
    port = result.command == "port"
    comparison: Mapping[str, Any] | None = data.get("comparison") if port else data
    if not data["holds"]:
        reasons = [
            finding.message
            for finding in result.findings
            if finding.code.startswith("TP3") and finding.severity == "error"
        ]
        return (
            "bad",
            "The port does not hold" if port else "The runs do not agree",
            _sentence((reasons or [""])[0]),
        )
    if comparison is None:
        return "good", "The port trains like the original", ""
    worst = comparison["worst"]["first"]
    grounds = f"{_count(comparison['steps']['port'], 'step')} compared {comparison['method']}"
    if worst and not comparison["chance"]:
        grounds += f"; the worst of the first {comparison['tolerance']['first_steps']} differs by {float(worst):.1e}, "
        grounds += f"where {comparison['tolerance']['first']:g} is allowed"
    return (
        "good",
        "The port trains like the original" if port else "The runs agree",
        grounds + ".",
    )


def steps(result: Result) -> Iterator[str]:
    """The commands that come next."""
    data = result.data
    open_ = [
        finding for finding in result.findings if not finding.fix and finding.severity is not Severity.INFO
    ]
    blockers_first = sorted(open_, key=lambda finding: finding.severity is not Severity.ERROR)
    for code in list(dict.fromkeys(finding.code for finding in blockers_first))[:2]:
        yield f"torchport explain {code}" if code.isalnum() else "torchport explain"
    root = shlex.quote(str(data.get("root", "")))
    if result.command == "analyze":
        yield f"torchport convert {root} --diff"
        is_script = str(data.get("root", "")).endswith(".py")
        yield f"torchport port {root}" if is_script else f"torchport convert {root} -o {root}_npu"
    elif result.command == "convert":
        yield "torchport port SCRIPT -- ARGUMENTS   (with which it trains for a minute)"
    elif result.command == "port" and not data["holds"]:
        yield " ".join(
            [
                "torchport port",
                shlex.quote(str(data["script"])),
                "--from npu --",
                *map(shlex.quote, data["arguments"]),
            ]
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""
