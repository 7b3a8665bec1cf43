"""Every rule does what its own examples say."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator

import pytest

from torchport.convert import convert_source, inspection
from torchport.findings import Finding, Safety
from torchport.rules import Rule, Style, list_rules
from torchport.rules.distribute import distribution_rules
from torchport.rules.files import FileRule, file_rules
from torchport.rules.stops import stop_rules
from torchport.source.module import Module

CASES = [(rule, before, after) for rule in list_rules() for before, after in rule.rewrites]
REPORTS = [(rule, text) for rule in list_rules() for text in rule.reports]
IGNORES = [(rule, text) for rule in list_rules() for text in rule.ignores]
EVERY = (*list_rules(), *file_rules(), *stop_rules(), *distribution_rules())


def _without_import(text: str) -> str:
    """The text without the inserted import, which is TP001's own business."""
    return text.replace("import torch_npu\n", "", 1)


@pytest.mark.parametrize(("rule", "before", "after"), CASES)
def test_rewrites(rule: Rule, before: str, after: str) -> None:
    output = convert_source(before.encode(), "example.py", rule.style).output.decode()
    assert output == after if rule.after else _without_import(output) == after


def _codes(text: str, rule: Rule) -> set[str]:
    """The codes of the findings in `text`, which has to stay as it is."""
    conversion = convert_source(text.encode(), "example.py", rule.style)
    assert conversion.output == text.encode()
    return {finding.code for finding in conversion.findings}


@pytest.mark.parametrize(("rule", "text"), REPORTS)
def test_reports(rule: Rule, text: str) -> None:
    assert rule.code in (codes := _codes(text, rule)) and "TP903" not in codes


@pytest.mark.parametrize(("rule", "text"), IGNORES)
def test_ignores(rule: Rule, text: str) -> None:
    assert not {rule.code, "TP903"} & _codes(text, rule)


@pytest.mark.parametrize("rule", EVERY, ids=lambda rule: rule.code)
def test_has_a_positive_example(rule: Rule | FileRule) -> None:
    assert rule.rewrites or rule.reports


def _examples(rule: Rule | FileRule) -> Iterator[tuple[str, str]]:
    """File name and text of each example that a rule of `list_rules()` or `file_rules()` has something to say about."""
    if isinstance(rule, FileRule):
        yield from ((name, before) for name, before, _ in rule.rewrites)
        yield from rule.reports
    else:
        yield from (("a.py", before) for before, _ in rule.rewrites)
        yield from (("a.py", text) for text in rule.reports)


@pytest.mark.parametrize("rule", [*list_rules(), *file_rules()], ids=lambda rule: rule.code)
def test_its_words_are_in_its_examples(rule: Rule | FileRule) -> None:
    """The words of others would not do: they may change."""
    if rule.words is None or (isinstance(rule, Rule) and rule.after is not None):
        return
    for _, text in _examples(rule):
        data = text.encode()
        mentions = isinstance(rule, Rule) and rule.mentions(data)
        assert mentions or any(word in data.lower() for word in rule.words), text


def test_a_rule_without_words_is_asked_about_every_file(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"x = torch.no_word_of_any_rule(y)\n"
    assert convert_source(text, "a.py").findings == ()

    def check(module: Module, style: Style) -> Iterator[Finding]:
        yield added.make_finding(module, next(module.iter_nodes(ast.Call)), "found")

    plain = next(rule for rule in list_rules() if rule.after is None)
    added = dataclasses.replace(plain, code="TP999", check=check, words=None)
    monkeypatch.setattr(inspection, "list_rules", lambda: (*list_rules(), added))
    inspection._words.cache_clear()
    try:
        assert [finding.code for finding in convert_source(text, "a.py").findings] == ["TP999"]
    finally:
        inspection._words.cache_clear()


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("a.py", "p = ['TensorrtExecutionProvider']\n", "TP404"),
        ("job.yaml", "env:\n  CUBLAS_WORKSPACE_CONFIG: ':4096:8'\n", "TP601"),
        ("job.yaml", "run: ncu python t.py\n", "TP603"),
        ("job.yaml", "image: nvcr.io/x/pytorch\n", "TP603"),
    ],
)
def test_what_says_nothing_of_cuda_is_found_as_well(name: str, text: str, code: str) -> None:
    assert code in {finding.code for finding in convert_source(text.encode(), name).findings}


@pytest.mark.parametrize("rule", list_rules(), ids=lambda rule: rule.code)
def test_has_as_many_noops_as_rewrites(rule: Rule) -> None:
    assert len(rule.reports) + len(rule.ignores) >= max(len(rule.rewrites), 1)
    assert bool(rule.rewrites) == (rule.safety is not Safety.REPORT)
    assert rule.why.endswith(".")
    assert rule.reference.startswith("https://")


def test_codes_are_unique() -> None:
    codes = [rule.code for rule in list_rules()]
    assert len(set(codes)) == len(codes)
