"""Every rule of the multi-card conversion does what its own examples say, each on its own."""

from __future__ import annotations

import pytest

from torchport.findings import Safety, Severity
from torchport.rules import Rule, Style
from torchport.rules.distribute import distribution_rules
from torchport.rules.distribute.script import Script
from torchport.source.edits import splice
from torchport.source.module import Module

CASES = [(rule, before, after) for rule in distribution_rules() for before, after in rule.rewrites]
NOOPS = [(rule, text) for rule in distribution_rules() for text in (*rule.reports, *rule.ignores)]


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
    assert len(rule.reports) + len(rule.ignores) >= len(rule.rewrites)


def test_without_a_proof_there_is_a_finding() -> None:
    said = {rule.code: 0 for rule in distribution_rules()}
    for rule, text in NOOPS:
        findings = list(rule.check(Script("a.py", text.encode(), "model"), Style.NPU))
        assert all(finding.hint for finding in findings if not finding.fix)
        assert bool(findings) == (text in rule.reports)
        said[rule.code] += len(findings)
    assert said["TP211"] >= 5
    assert said["TP212"] >= 1


LOADERS = """\
from torch.utils.data import DataLoader
train, test = DataLoader(a, shuffle=True), DataLoader(b)
def on_device(batches, limit=None):
    for x in batches:
        yield x.cuda()
for x in on_device(train):
    loss(x).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("reads_test", "said"),
    [
        ("", ["no loop of this file runs over it"]),
        ("print(sum(model(x) for x in test))\n", []),
        ("print([model(x) for x in on_device(test, limit=3)])\n", []),
        ("def more():\n    yield from on_device(test)\nfor x in more():\n    model(x)\n", []),
    ],
)
def test_generators_and_comprehensions_are_loops(reads_test: str, said: list[str]) -> None:
    (rule,) = (one for one in distribution_rules() if one.code == "TP211")
    findings = list(rule.check(Script("a.py", (LOADERS + reads_test).encode(), "model"), Style.NPU))
    assert [one.message.rpartition(": ")[2] for one in findings if one.severity is Severity.WARNING] == said
    (edit,) = [one for one in findings if one.fix]
    assert edit.location and edit.location.line == 2 and edit.safety is Safety.SAFE
