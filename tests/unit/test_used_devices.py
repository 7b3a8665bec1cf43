"""The line that `torchport run` ends with: it is read as it was written, and reports of processes make one."""

from __future__ import annotations

import pytest

from torchport.record.use_reports import Report, merge_reports
from torchport.results.used_devices import Use, UsedDevice, format_used_devices, parse_used_devices

BUSY = UsedDevice("npu:0", "0", 1234, (9, 10))
IDLE = UsedDevice("npu:0", "0", 0)
NOT_COUNTED = UsedDevice("npu:1", "3")


@pytest.mark.parametrize(
    ("uses", "line"),
    [
        ([Use((BUSY,))], "torchport: NPUs used: npu:0, 1,234 operators in 9 of 10 steps"),
        ([Use((UsedDevice("npu:2", "2", 1, (1, 1)),))], "torchport: NPUs used: npu:2, 1 operator in 1 of 1 step"),
        ([Use((NOT_COUNTED,))], "torchport: NPUs used: npu:1 (card 3)"),
        (
            [
                Use((BUSY,), rank=0),
                Use((UsedDevice("npu:1", "1", 5), IDLE), rank=1),
                Use((), rank=2),
                Use(None, rank=3),
            ],
            "torchport: NPUs used: rank 0: npu:0, 1,234 operators in 9 of 10 steps; rank 1: npu:1, 5 operators "
            "and npu:0 opened, nothing computed; rank 2: none; rank 3: unknown",
        ),
        (
            [Use((BUSY,), process=41), Use((NOT_COUNTED,), process=42)],
            "torchport: NPUs used: process 41: npu:0, 1,234 operators in 9 of 10 steps; process 42: npu:1 (card 3)",
        ),
        ([Use(())], "torchport: no NPU was used: everything ran on the CPU"),
        (
            [Use((IDLE,), rank=0), Use((), rank=1)],
            "torchport: no NPU was used: everything ran on the CPU; rank 0: npu:0 opened, nothing computed; rank 1: none",
        ),
        (
            [Use((IDLE,), rank=0), Use(None, rank=1)],
            "torchport: NPUs used: rank 0: npu:0 opened, nothing computed; rank 1: unknown",
        ),
    ],
)
def test_line_round_trip(uses: list[Use], line: str) -> None:
    assert format_used_devices(uses) == line
    assert parse_used_devices(line) == tuple(uses)
    assert parse_used_devices(f"[rank0]: {line}\n") == tuple(uses)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "torchport: NPUs used",
        "torchport: NPUs used: ",
        "torchport: NPUs used: cuda:0",
        "torchport: NPUs used: rank x: npu:0",
    ],
)
def test_other_lines_are_none(line: str) -> None:
    assert parse_used_devices(line) is None


def test_report_round_trip() -> None:
    for report in (Report(1, None), Report(2, 3, (BUSY, IDLE, NOT_COUNTED))):
        assert Report.from_line(report.to_line()) == report


def test_children_of_a_rank_count_as_the_rank() -> None:
    child = Report(3, 1, (UsedDevice("npu:1", "1", 7), IDLE))
    merged = merge_reports([Report(1, 0, (BUSY,)), Report(2, 1, (UsedDevice("npu:1", "1", 5, (1, 1)),)), child])
    assert merged == [Use((BUSY,), rank=0), Use((UsedDevice("npu:1", "1", 12, (1, 1)), IDLE), rank=1)]


@pytest.mark.parametrize(
    ("reports", "uses"),
    [
        ([], []),
        ([Report(1, None, ())], [Use(())]),
        ([Report(1, None, ()), Report(2, None, (BUSY,))], [Use((BUSY,))]),  # the first has started the second
        ([Report(1, None, ()), Report(2, 0, (BUSY,))], [Use((BUSY,), rank=0)]),  # a launcher
        ([Report(1, None, ()), Report(2, 0), Report(3, 1), Report(3, 1, ())], [Use(None, rank=0), Use((), rank=1)]),
        ([Report(1, None, ()), Report(2, 0)], []),  # nobody has said anything
        ([Report(1, None, ()), Report(2, None)], []),  # the other may have used an NPU
        ([Report(1, None, (BUSY,)), Report(2, None)], [Use((BUSY,))]),
        ([Report(1, None, ()), Report(2, None), Report(2, 1, ())], [Use((), rank=1)]),  # the rank is known later
    ],
)
def test_merged_reports(reports: list[Report], uses: list[Use]) -> None:
    assert merge_reports(reports) == uses
