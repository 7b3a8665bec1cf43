"""Every rule does what its own examples say."""

from __future__ import annotations

import pytest

from torchport.convert import convert_source
from torchport.findings import Safety
from torchport.rules import Rule, rules

CASES = [(rule, before, after) for rule in rules() for before, after in rule.rewrites]
NOOPS = [(rule, text) for rule in rules() for text in rule.unchanged]


def _without_import(text: str) -> str:
    """The text without the inserted import, which is TP001's own business."""
    return text.replace("import torch_npu\n", "", 1)


@pytest.mark.parametrize(("rule", "before", "after"), CASES)
def test_rewrites(rule: Rule, before: str, after: str) -> None:
    output = convert_source(before.encode(), "example.py", rule.style).output.decode()
    assert output == after if rule.after else _without_import(output) == after


@pytest.mark.parametrize(("rule", "text"), NOOPS)
def test_leaves_alone(rule: Rule, text: str) -> None:
    conversion = convert_source(text.encode(), "example.py", rule.style)
    assert conversion.output == text.encode()
    assert not [finding for finding in conversion.findings if finding.code == "TP903"]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.code)
def test_has_as_many_noops_as_rewrites(rule: Rule) -> None:
    assert len(rule.unchanged) >= max(len(rule.rewrites), 1)
    assert bool(rule.rewrites) == (rule.safety is not Safety.REPORT)
    assert rule.why.endswith(".")
    assert rule.reference.startswith("https://")


def test_codes_are_unique() -> None:
    codes = [rule.code for rule in rules()]
    assert len(set(codes)) == len(codes)
