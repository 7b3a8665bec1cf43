"""CANN's own words for a code, read at run time from what is installed: none of them are kept here.

The wheel of torch_npu brings NPUErrorCodes.h, which has the numbers of the runtime; an installed CANN has
error_code.json, which has the codes that begin with E. Neither is imported, and without them there is no text.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_HEADER = "include/torch_npu/csrc/core/npu/NPUErrorCodes.h"
_TABLE = "conf/error_manager/error_code.json"
_ENTRY = re.compile(r'\{\s*(\d{6}),\s*"((?:[^"\\]|\\.|\\\n)*)"', re.DOTALL)
_NUMBER = re.compile(r"error code is ?:?(\d{6})\b")
_REPORT = re.compile(r"\b(E[A-Z0-9]\d{4})\b")


def words_for(text: str) -> str:
    """The official words for the first code in `text` that has any; "" for none."""
    for code in _NUMBER.findall(text):
        if code in read_runtime_codes():
            return f"{code}: {read_runtime_codes()[code]}"
    for code in _REPORT.findall(text):
        if code in read_report_codes():
            return f"{code}: {read_report_codes()[code]}"
    return ""


@functools.cache
def read_runtime_codes() -> Mapping[str, str]:
    """Numbers of the runtime and their words, from the wheel; empty where torch_npu is not installed."""
    try:
        spec = importlib.util.find_spec("torch_npu")
        header = Path(spec.origin or "").parent / _HEADER if spec else Path()
        text = header.read_text("utf-8", "replace")
    except (OSError, ValueError, ImportError):
        return {}
    return {code: _plain(words) for code, words in _ENTRY.findall(text)}


@functools.cache
def read_report_codes() -> Mapping[str, str]:
    """Report codes and their messages, from the CANN of ASCEND_HOME_PATH; empty without one."""
    try:
        table = json.loads(Path(os.environ.get("ASCEND_HOME_PATH", ""), _TABLE).read_bytes())
    except (OSError, ValueError):
        return {}
    found = {}
    for row in _tables(table):
        keys = {str(key).lower(): value for key, value in row.items()}
        code, message = keys.get("errcode"), keys.get("errmessage")
        if isinstance(code, str) and isinstance(message, str):
            found[code] = _plain(message)
    return found


def _tables(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from _tables(item)


def _plain(text: str) -> str:
    """On one line."""
    return " ".join(text.replace("\\n", " ").replace("\\\n", " ").split())
