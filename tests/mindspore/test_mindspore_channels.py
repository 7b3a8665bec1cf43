"""What compiled graphs send to the program, dumps, prints and summaries, and data that they read ahead themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from running import answers, cases, clean, run

DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return cases("channels.py", tmp_path_factory.mktemp("channels"))


def value(said: dict[str, Any], case: str) -> Any:
    assert "error" not in said[case], said[case]
    return said[case]["said"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dumps_hold_what_was_computed(said: dict[str, Any], dtype: str) -> None:
    same, others_differ = value(said, f"dump {dtype}")
    assert same and others_differ


def test_prints_come_in_their_order(tmp_path: Path) -> None:
    result = run("channels.py", "print", cwd=tmp_path)
    clean(result)
    words = [
        f"\n{word}\nTensor(shape=[1, 2], dtype=Float32, value=\n[[ {number}  {number}]])"
        for word, number in (("first", "7.00000000e+00"), ("second", "1.40000000e+01"))
    ]
    assert "".join(words) in "\n" + result.stdout, result.stdout


def test_summaries_hold_what_was_computed(said: dict[str, Any]) -> None:
    scalar, tensor = value(said, "summaries")
    assert abs(scalar) < 1e-5 and tensor == 0


@pytest.mark.parametrize("how", ["compiled", "step by step", "op by op"])
def test_a_run_that_sinks_its_data_is_one_that_does_not(said: dict[str, Any], how: str) -> None:
    losses_are_equal, weights_are_equal, other_data_give_others = value(said, f"sink, {how}")
    assert losses_are_equal and weights_are_equal and other_data_give_others


def test_an_evaluation_that_sinks_its_data_is_one_that_does_not(said: dict[str, Any]) -> None:
    plain, sunk = value(said, "sink, evaluated")
    assert plain == sunk > 0


def test_data_that_nobody_reads_do_not_keep_a_run(said: dict[str, Any]) -> None:
    assert value(said, "sink, not to the end") is None


def test_data_that_do_not_come_end_the_run_in_time(tmp_path: Path) -> None:
    result = run("channels.py", "broken data", cwd=tmp_path, VNPU_TRACE=str(tmp_path / "trace"))
    (found,) = answers(result)
    assert "Sync stream failed" in found["error"], found
    assert "a broken row" in result.stderr
    assert "waited too long to take from channel" in (tmp_path / "trace").read_text()
