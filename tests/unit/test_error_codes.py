"""`torchport explain CODE`: every code that the rows of logs, the virtual NPU and torch_npu's wheel know has an answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from torchport.cli import main
from torchport.knowledge.errors import load_error_rows, official
from torchport.knowledge.errors.codes import find_code

PAGE = Path(__file__).parents[2] / "docs/reference/errors.md"
ANY = re.compile(r"(?<![A-Za-z0-9_-])(?:[1-5]\d{5}|E[A-Z0-9]\d{4}|ERR\d{5})(?![A-Za-z0-9_])")


def list_codes():
    for row in load_error_rows().values():
        for text in (*row.words, *row.samples):
            yield from ANY.findall(text)
    yield from ANY.findall(PAGE.read_text())
    yield from official.read_runtime_codes()


def test_every_code_that_is_known_is_explained():
    codes = sorted(set(list_codes()))
    assert len(codes) > 80
    unknown = [code for code in codes if (found := find_code(code)) is None or not found.is_known]
    assert unknown == []


@pytest.mark.parametrize(
    ("code", "by", "name", "row"),
    [
        ("EJ0001", "HCCP", "", "collective.hccp-busy"),
        ("ej0001", "HCCP", "", "collective.hccp-busy"),
        ("507018", "runtime", "ACL_ERROR_RT_AICPU_EXCEPTION", "kernel.device-cpu"),
        ("161002", "aclnn", "ACLNN_ERR_PARAM_INVALID", "operator.parameter"),
        ("EI0002", "HCCL", "Communication_Error_Timeout", "collective.silent-rank"),
        ("ERR00100", "PTA", "a call of AscendCL has failed", "follow.code"),
        ("ERR02200", "DIST", "a call of HCCL has failed", "follow.code"),
    ],
)
def test_a_code_has_its_part_its_name_and_its_rows(code, by, name, row):
    found = find_code(code)
    assert found.code == code.upper()
    assert by in found.by
    assert found.name.startswith(name)
    assert row in [one.name for one in found.rows]


@pytest.mark.parametrize("word", ["123456", "999999", "ERR77100", "ERR00555", "E12", "EZ99999", "TP120", "Error"])
def test_what_is_no_code_has_no_answer(word):
    assert find_code(word) is None


def test_explain_prints_the_rows_and_the_next_command(capsys):
    assert main(["explain", "ez9999"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("EZ9999, AclNN_Inner_Error (CANN, operators)")
    assert "No row of torchport's has this code" in text
    assert main(["explain", "507018", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["name"] == "ACL_ERROR_RT_AICPU_EXCEPTION"
    assert facts["rows"][0]["fix"].startswith("Give it the dtype")
    assert main(["explain", "123456"]) == 2
