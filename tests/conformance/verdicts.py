"""What a verdict is, "PASS" or "STATUS: reason", and how lists of them are compared: for run.py, judge.py, and
tests/upstream, which judges torch_npu's own tests in the same words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

# Beside the dtypes: whether what an operator cannot compute is refused in time, and whether it matters how operands lie.
REFUSALS, LAYOUTS = "refusals", "layouts"


def status_of(verdict: str) -> str:
    return verdict.partition(":")[0]


def verdict_of(status: str, reason: str) -> str:
    return f"{status}: {reason}" if reason else status


def worse(before: str, now: str) -> bool:
    """Whether something has left PASS or has come to crash or hang; both are statuses."""
    left = before == "PASS" and now != "PASS"
    return left or (now in ("CRASH", "TIMEOUT") and before != now)


def changes(rows: Iterable[tuple[str, str, str]]) -> int:
    """Print what differs: rows of a name, the verdict before and the one now. Returns how many are worse."""
    regressions = 0
    for name, known, verdict in rows:
        before, now = status_of(known), status_of(verdict)
        if before != now:
            regressions += worse(before, now)
            print(f"{'! ' if worse(before, now) else '  '}{name}: {before} -> {verdict}")
    return regressions


def counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {status}" for status, count in counts.most_common())


def chip_limit(text: str) -> str:
    """What was refused for what the chip cannot, or nothing. `text` has no line breaks."""
    refusal = re.search(
        r"\(EZ\d+\): (.{1,300}?) on \w+; with VNPU_CHECKS=any .{1,80}?\[virtual NPU, (\w+?)(?:GetWorkspaceSize)?\]",
        text,
    )
    return f"cann: {refusal[2]}: {refusal[1]}" if refusal else ""


def refused(text: str) -> tuple[str, str] | None:
    """Status and reason, where the virtual NPU says that it lacks an operator, or that the chip takes no such dtype."""
    if gap := re.search(r"does not (?:implement|have the legacy operator) (\w+)", text):
        return "GAP", gap[1]
    if gap := re.search(r"(\w+) or \w+ not in libopapi", text):
        return "GAP", gap[1]
    if refusal := re.search(r"(parameter \w+ has dtype \w+), allowed are .*?virtual NPU, (\w+)GetWorkspaceSize", text):
        return "NOT_OFFERED", f"cann: {refusal[2]}: {refusal[1]}"
    return None


def kernel_failure(text: str, log: str) -> str:
    """What `log` says of the kernel whose failure `text` tells of by its code, or nothing."""
    if not re.search("507015|507018|507035", text):
        return ""
    failures = re.findall(r"(\w+ failed on stream[^\n]*)", log)
    return failures[-1][:300] if failures else ""


def own_words(text: str) -> str:
    """The refusal in the virtual NPU's words, without time and process, or nothing."""
    refusal = re.search(r"\[PID: \d+\] \S+ (.{1,600}? \[virtual NPU, \w+\])", text)
    return refusal[1] if refusal else ""
