"""Printed numbers, by the words of their lines."""

from __future__ import annotations

import pytest

from torchport.port.printed import compare_printed

REFERENCE = """step 10 mean of scores 0.8125 of 64
step 20 mean of scores 0.8438 of 64
took 3.2 s, 120 it/s
best at 17
"""


def differs(port: str, again: str | None = None, reference: str = REFERENCE) -> bool | None:
    row = compare_printed(reference, port, 1e-2, again, 20.0)
    return None if row is None else not row.equal


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("0.8438", "0.7969", "another score in one line"),
        ("of 64\nstep 20", "of 60\nstep 20", "another count"),
        ("best at 17", "best at 12", "a number without a name"),
        ("0.8125", "nan", "no number"),
    ],
)
def test_another_number_is_noticed_whatever_it_is_called(old: str, new: str, why: str) -> None:
    assert differs(REFERENCE.replace(old, new)), why


@pytest.mark.parametrize("line", ["{} of 300 words right", "right: {}/300", "{} / 300", "{} out of 300"])
def test_far_fewer_of_a_total_are_noticed(line: str) -> None:
    assert differs(line.format(31), reference=line.format(232))
    assert not differs(line.replace("300", "s").format(31), reference=line.replace("300", "s").format(232))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("0.8438", "0.8437", "rounded to its last digit"),
        ("3.2 s, 120 it/s", "88.0 s, 2 it/s", "times have units"),
        ("took", "UserWarning: slow in 7\ntook", "lines that one run alone prints"),
        ("best at 17", "best at 170", "ten times as much is another thing than a score"),
    ],
)
def test_what_says_nothing(old: str, new: str, why: str) -> None:
    assert not differs(REFERENCE.replace(old, new)), why


@pytest.mark.parametrize("name", ["max mem:", "memory", "gpu_mem=", "max_memory_allocated =", "Mem: "])
def test_memory_says_nothing(name: str) -> None:
    assert not differs(f"loss 0.7144 {name} 1", reference=f"loss 0.7144 {name} 0")
    assert differs("members: 1", reference="members: 0")


def test_the_lines_of_ranks_have_no_order() -> None:
    line = "Process rank: {0}, world size: 2, device: {1}:{0}, seed {2}\n"
    original = line.format(1, "cuda", 7) + line.format(0, "cuda", 4)
    assert not differs(line.format(0, "npu", 4) + line.format(1, "npu", 7), reference=original)
    assert differs(line.format(0, "npu", 7) + line.format(1, "npu", 4), reference=original)


@pytest.mark.parametrize(
    ("port", "again", "refused"),
    [
        (REFERENCE.replace("best at 17\n", ""), None, True),
        (REFERENCE.replace("best at 17\n", ""), REFERENCE, True),
        (REFERENCE.replace("best at 17\n", ""), REFERENCE + "best at 17\n", False),  # not always as often
        (REFERENCE.replace("best at 17\n", "best at None\n"), REFERENCE, False),  # another line in its place
        (REFERENCE.replace("best at 17\n", "the best is 17\n"), REFERENCE, False),
        (REFERENCE + "the device warns 3 times\n", REFERENCE, False),  # a device may say more
    ],
)
def test_a_line_that_the_port_lacks_is_a_difference(port: str, again: str | None, refused: bool) -> None:
    assert differs(port, again) is refused
    row = compare_printed(REFERENCE, port, 1e-2, again, 20.0)
    assert row is not None and ("the port does not print the line 'best at 17'" in (row.note or "")) is refused


def test_what_differs_between_two_runs_of_the_original_is_allowed() -> None:
    timed = REFERENCE + "pass 1: 4.11\n"
    port = REFERENCE + "pass 1: 9.7\n"
    assert differs(port, reference=timed)
    assert not differs(port, REFERENCE + "pass 1: 4.6\n", timed)
    # In the line of these words alone.
    wrong = port.replace("0.8438", "0.7969")
    row = compare_printed(timed, wrong, 1e-2, REFERENCE + "pass 1: 4.6\n", 20.0)
    assert row is not None and not row.equal
    assert row.note == "0.7969 against 0.8438 in the line 'step 20 mean of scores 0.8438 of 64'"


def test_a_larger_difference_that_is_allowed_hides_none_that_comes_later() -> None:
    row = compare_printed("pass 4.11\nscore 0.80\n", "pass 9.7\nscore 0.90\n", 1e-2, "pass 4.6\nscore 0.80\n", 20.0)
    assert row is not None and not row.equal
    assert row.note == "0.90 against 0.80 in the line 'score 0.80'"


def test_outputs_without_numbers_are_no_row() -> None:
    assert differs("done\n", reference="done\n") is None


@pytest.mark.parametrize(
    ("reference", "port", "points", "equal"),
    [
        ("epoch 1: loss 1.64, acc 46.88, scale 65536", "epoch 1: loss 1.64, acc 47.92, scale 65536", 1.5, True),
        ("val accuracy 0.4688", "val accuracy 0.4792", 1.5, True),
        ("epoch 1: loss 1.64, acc 46.88, scale 65536", "epoch 1: loss 1.64, acc 48.92, scale 65536", 1.5, False),
        ("epoch 1: loss 1.64, acc 46.88, scale 65536", "epoch 1: loss 1.64, acc 47.92, scale 65536", 0.0, False),
        ("epoch 1: loss 46.88", "epoch 1: loss 47.92", 1.5, False),
        ("val accuracy 0.4688", "val accuracy 0.52", 1.5, False),
    ],
)
def test_in_half_precision_a_share_of_samples_may_differ_by_points(
    reference: str, port: str, points: float, equal: bool
) -> None:
    row = compare_printed(reference, port, 1e-2, points=points)
    assert row is not None
    assert row.equal is equal
