"""The counts of counting.py: they are the same every time, and see work that grows with the square."""

from __future__ import annotations

from counting import grows_with, work


def pairs(count: int) -> int:
    return sum(1 for one in range(count) for other in range(count) if one == other)


def read_from_the_start(count: int) -> None:
    text = "x = 1\n" * count
    for _ in range(count):
        text.count("\n")


def each_once(count: int) -> None:
    text = "x = 1\n" * count
    for line in text.splitlines():
        assert line.startswith("x")


def test_work_in_python_that_grows_with_the_square_is_seen() -> None:
    assert not grows_with(lambda: pairs(50), lambda: pairs(200), 4)


def test_work_in_methods_that_grows_with_the_square_is_seen() -> None:
    assert not grows_with(lambda: read_from_the_start(100), lambda: read_from_the_start(400), 4)


def test_work_that_grows_with_the_length_is_granted() -> None:
    assert grows_with(lambda: each_once(100), lambda: each_once(400), 4)


def test_a_count_is_the_same_every_time() -> None:
    assert work(lambda: pairs(20)) == work(lambda: pairs(20))
    assert work(lambda: "ab".count("b")).characters == 2
