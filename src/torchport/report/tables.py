"""A conversion as the CSV tables that users of other Ascend migration tools know."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from torchport.findings import Finding, Result, Severity

_ON_CPU, _ON_ONE = "TP701", "TP202"  # computed on the CPU; does nothing on one NPU, fails on several
_GONE = "TP704"  # torch does not have it any more: nothing about the NPU
_APIS = ("TP101", "TP102", _ON_ONE, _ON_CPU, "TP702", "TP703", _GONE)
_PLACE = ("File", "Start Line", "End Line")


def render_csv_tables(result: Result) -> dict[str, str]:
    """File name to CSV text: `change_list`, `unsupported_api`, `unknown_api` and `cuda_op_list`."""
    findings = [finding for finding in result.findings if finding.location is not None]
    api = [finding for finding in findings if finding.code in _APIS and not finding.fix]
    return {
        "change_list.csv": _csv(
            [*_PLACE, "Operation Type", "Message"],
            ([*_place(finding), _operation(finding), finding.message] for finding in findings if finding.fix),
        ),
        "unsupported_api.csv": _csv(
            [*_PLACE, "OP", "Tips"],
            (
                [*_place(one), _source(one), one.hint]
                for one in api
                if (one.severity is Severity.ERROR and one.code != _GONE) or one.code in (_ON_CPU, _ON_ONE)
            ),
        ),
        "unknown_api.csv": _csv(
            [*_PLACE, "OP", "Tips"],
            (
                [*_place(one), _source(one), one.hint]
                for one in api
                if (one.severity is Severity.WARNING and one.code != _ON_ONE) or one.code == _GONE
            ),
        ),
        "cuda_op_list.csv": _csv(
            ["File", "Api"],
            (
                [_place(one)[0], name]
                for one in findings
                if one.code == "TP605" or (one.code == "TP606" and one.severity is Severity.INFO)
                for name in _source(one).split(", ")
            ),
        ),
    }


def _csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def _cell(value: object) -> object:
    """A text that a spreadsheet would run as a formula becomes plain text."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def _place(finding: Finding) -> list[object]:
    assert finding.location is not None
    return [finding.location.path, finding.location.line, finding.location.end_line]


def _source(finding: Finding) -> str:
    """The name that a finding is about: of an import what is imported, of a call what is called."""
    if finding.code == "TP102":
        return finding.message.split()[0]
    return str(finding.evidence.get("source", "")).partition("(")[0].strip()


def _operation(finding: Finding) -> str:
    if all(edit.start == edit.end for edit in finding.fix):
        return "INSERT"
    return "DELETE" if not any(edit.replacement for edit in finding.fix) else "MODIFY"
