"""What the reader of configuration files takes for JSON: what RFC 8259 calls so, and nothing else."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from pathlib import Path

import ascendcl
import pytest

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("npu")]
PARSE_FILE, INVALID_DUMP_CONFIG = 100006, 100009


@pytest.fixture(autouse=True)
def dumping(npu: None) -> Iterator[None]:
    ascendcl.acl("aclmdlInitDump")
    yield
    ascendcl.acl("aclmdlFinalizeDump")


def is_json(folder: Path, text: str | bytes) -> bool:
    """Whether the file is read; it then says nothing of a dump, which is another error."""
    path = folder / "dump.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    code = ascendcl.code("aclmdlSetDump", ctypes.c_char_p(bytes(path)))
    assert code in (PARSE_FILE, INVALID_DUMP_CONFIG)
    if code == PARSE_FILE:
        assert f"{path}: line " in ascendcl.message()
    return code == INVALID_DUMP_CONFIG


NUMBERS = ["nan", "NaN", "inf", "-inf", "Infinity", ".5", "1.", "-", "+1", "01", "-01", "1e", "1e+", "0x1", "1.e5"]
NUMBERS += ["1e999", "١"]
STRINGS = ['"\t"', '"\n"', '"\0"', '"\x1f"', '"a', "'a'", r'"\x41"', r'"\u12"', r'"\u-001"', r'"\u 123"']
STRINGS += [r'"\ud800"', r'"\ud800x"', r'"\ud800A"', r'"\ud800\ud800"', r'"\udc00"', r'"\udfff\ud800"']
OTHERS = ["", " ", "tru", "truex", "None", "[1,]", "[,1]", "[1 2]", "[", "]", '{"a":1,}', '{"a" 1}', "{a: 1}"]
OTHERS += ['{"a":1 "b":2}', "{1: 2}", "[1]]", "[] []", "// c\n1", "\ufeff1", "[" * 5000, "[" * 12 + "]" * 12]


@pytest.mark.parametrize("text", NUMBERS + STRINGS + OTHERS)
def test_what_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    for whole in (text, f"[{text}]") if text.strip() else (text,):
        assert not is_json(tmp_path, whole)


@pytest.mark.parametrize(
    "text",
    [
        *("0", "-0", "0.5", "-1.25e+3", "1E5", "1e-5", "10", "123456789012345678901234567890"),
        *('""', '"a b"', '"\x7f"', '"é日"', r'"\"\\\/\b\f\n\r\t"', r'"\u0041\u00e9\ud83d\ude00"', r'"\udbff\udfff"'),
        *("true", "false", "null", "[]", "{}", ' \t\r\n[ 1 , [ ] , { "a" : null } ] \n', "[" * 10 + "]" * 10),
    ],
)
def test_what_is_json_is_read(tmp_path: Path, text: str) -> None:
    json.loads(text)
    assert is_json(tmp_path, text)
