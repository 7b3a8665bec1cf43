"""Every rule of the multi-card conversion does what its own examples say, each on its own."""

from __future__ import annotations

import pytest

from torchport.findings import Safety
from torchport.rules import Rule, Style
from torchport.rules.distribute import distribution_rules
from torchport.rules.distribute.script import Script
from torchport.source.edits import splice
from torchport.source.module import Module

CASES = [(rule, before, after) for rule in distribution_rules() for before, after in rule.rewrites]
NOOPS = [(rule, text) for rule in distribution_rules() for text in rule.unchanged]


def applied(rule: Rule, text: str) -> str:
    findings = rule.check(Script("a.py", text.encode(), "model"), Style.NPU)
    edits = [edit for finding in findings if finding.safety is not Safety.REPORT for edit in finding.fix]
    return splice(text.encode(), edits).decode()


@pytest.mark.parametrize(("rule", "before", "after"), CASES)
def test_rewrites(rule: Rule, before: str, after: str) -> None:
    assert applied(rule, before) == after
    compile(after, "a.py", "exec")


@pytest.mark.parametrize(("rule", "text"), NOOPS)
def test_leaves_alone(rule: Rule, text: str) -> None:
    assert applied(rule, text) == text


@pytest.mark.parametrize("rule", distribution_rules(), ids=lambda rule: rule.code)
def test_looks_at_scripts_to_be_distributed_only(rule: Rule) -> None:
    assert list(rule.check(Module("a.py", rule.rewrites[0][0].encode()), Style.NPU)) == []
    assert len(rule.unchanged) >= len(rule.rewrites)


def test_without_a_proof_there_is_a_finding() -> None:
    said = {}
    for rule, text in NOOPS:
        findings = list(rule.check(Script("a.py", text.encode(), "model"), Style.NPU))
        assert all(finding.hint for finding in findings if not finding.fix)
        said.setdefault(rule.code, 0)
        said[rule.code] += len(findings)
    assert said["TP211"] >= 5
    assert said["TP212"] >= 1
