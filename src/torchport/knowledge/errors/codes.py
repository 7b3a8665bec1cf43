"""Codes by themselves: 507018, EJ0001, ERR00100. Which part of the stack gives it, and which rows know it."""

from __future__ import annotations

import dataclasses
import functools
import re
import tomllib
from collections.abc import Mapping
from importlib import resources

from torchport.knowledge.errors import Row, load_error_rows, official
from torchport.knowledge.errors.answers import Kind, load_fault_kinds

NUMBER = re.compile(r"[1-5]\d{5}")
REPORT = re.compile(r"[EW][A-Z0-9]\d{4}")
TORCH_NPU = re.compile(r"ERR(\d{2})(\d{3})")
# By the first three figures: acl_base.h and rt_error_codes.h for the runtime, op_errno.h of opbase for operators.
NUMBERS = {
    "100": "ACL: an argument of AscendCL",
    "107": "runtime: an argument, or the state in which it was called",
    "161": "aclnn: an argument of an operator",
    "200": "ACL: something that is not there or not supported",
    "207": "runtime: memory, streams, events or another resource",
    "361": "aclnn: the runtime below an operator",
    "500": "ACL: an inner error",
    "507": "runtime: the device, a kernel or what waits for it",
    "561": "aclnn: an inner error of an operator, its tiling or its kernel",
}
# By the letters behind E and W, as the report codes of error_code.json are given out.
REPORTS = {
    "E": "runtime",
    "H": "AscendCL",
    "I": "HCCL: collectives",
    "J": "HCCP: the network below HCCL",
    "K": "profiling",
    "L": "driver",
    "Z": "operators",
}
# torch_npu 2.13.0, utils/_error_code.py and csrc/core/npu/NPUException.h: ERR, the part, the error.
PARTS = {
    "00": "PTA: torch_npu itself",
    "01": "OPS: operators",
    "02": "DIST: torch.distributed",
    "03": "GRAPH",
    "04": "PROF",
    "99": "UNKNOWN",
}
ERRORS = {
    "000": "success",
    "001": "invalid parameter",
    "002": "invalid type",
    "003": "invalid value",
    "004": "invalid pointer",
    "005": "internal error",
    "006": "memory error",
    "007": "feature not supported",
    "008": "resource not found",
    "009": "resource unavailable",
    "010": "system call failed",
    "011": "timeout",
    "012": "no permission",
    "100": "a call of AscendCL has failed: the lines behind it have CANN's own code",
    "200": "a call of HCCL has failed: the lines behind it have CANN's own code",
    "300": "a call of the graph engine has failed: the lines behind it have CANN's own code",
    "999": "an exception of the application",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """A code, the part of the stack that gives it, its name and CANN's words where they are known; `rows` of logs that
    have it, and `kinds` of faults that the virtual NPU tells by it."""

    code: str
    by: str
    name: str
    words: str
    rows: tuple[Row, ...]
    kinds: tuple[Kind, ...]

    @property
    def is_known(self) -> bool:
        """Whether more is known of it than who gives it."""
        return bool(self.name or self.words or self.rows or self.kinds)


def find_code(word: str) -> Code | None:
    """The code that `word` is, in any case; None where it is none, or nothing gives it."""
    code = word.upper()
    rows = tuple(row for row in load_error_rows().values() if _has(row, code))
    if (ours := TORCH_NPU.fullmatch(code)) is not None:
        part, error = ours.groups()
        if part not in PARTS or error not in ERRORS:
            return None
        return Code(code, PARTS[part], ERRORS[error], "", rows or (load_error_rows()["follow.code"],), ())
    if NUMBER.fullmatch(code):
        kinds = [kind for kind in load_fault_kinds() if any(str(one.code) == code for one in kind.answers.values())]
        words = official.read_runtime_codes().get(code, "")
        found = Code(code, NUMBERS.get(code[:3], "CANN"), _load_names().get(code, ""), words, rows, tuple(kinds))
        return found if found.is_known or code[:3] in NUMBERS else None
    if REPORT.fullmatch(code):
        told = [kind for kind in load_fault_kinds() if any(f"({code})" in one.report for one in kind.answers.values())]
        titles = [
            one.report.partition("(")[0] for kind in told for one in kind.answers.values() if f"({code})" in one.report
        ]
        words = official.read_report_codes().get(code, "")
        by = REPORTS.get(code[1], "the graph engine or the compiler of operators")
        return Code(code, f"CANN, {by}", next(iter(filter(None, titles)), ""), words, rows, tuple(told))
    return None


@functools.cache
def _load_names() -> Mapping[str, str]:
    table = tomllib.loads(resources.files("torchport.knowledge").joinpath("faults.toml").read_text("utf-8"))
    return {str(code): name for name, code in table["codes"].items()}


def _has(row: Row, code: str) -> bool:
    """Whether a log with this code is meant, or a cause that tells of it."""
    texts = (*row.words, row.pattern.pattern if row.pattern else "", *row.samples, row.source)
    return any(re.search(rf"(?<![A-Z0-9]){code}(?![0-9])", text) for text in texts)
