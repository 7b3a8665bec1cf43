"""Two files of torch.utils.dumper: what is wrong is named, what is inherited, drawn or of one file alone is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy
import pytest

from torchport.cli import main
from torchport.compare.dumper_files import INHERITED, RANDOM, compare_dumper_files

X = numpy.linspace(-2, 2, 12, dtype=numpy.float32).reshape(3, 4)
DRAWS = numpy.random.default_rng(0)


def write(path: Path, calls: dict[str, tuple[list[object], list[object]]], dtype: str = "torch.float32") -> Path:
    """`calls` has inputs and outputs by "operator/n"."""
    with h5py.File(path, "w") as file:
        for name, both in calls.items():
            for kind, arrays in zip(("input", "output"), both, strict=True):
                group = file.require_group(f"{name}/{kind}")
                for place, array in enumerate(arrays):
                    data = numpy.asarray(array)
                    group.create_dataset(str(place), data=data).attrs["dtype"] = dtype if data.dtype.kind == "f" else ""
    return path


def wrong(tmp_path: Path, one: dict[str, object], other: dict[str, object], dtype: str = "torch.float32") -> list[str]:
    found = compare_dumper_files(write(tmp_path / "a.h5", one, dtype), write(tmp_path / "b.h5", other, dtype))
    return [f"{row.operator}/{row.call}" for row in found.wrong]


def gelu(x: object, tanh: bool) -> object:
    x = numpy.asarray(x, numpy.float64)
    if tanh:
        return (0.5 * x * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi) * (x + 0.044715 * x**3)))).astype("f4")
    from math import erf

    return (x * 0.5 * (1 + numpy.vectorize(erf)(x / 2**0.5))).astype("f4")


@pytest.mark.parametrize(
    ("right", "port", "dtype"),
    [
        (numpy.tanh(X), numpy.tanh(X) * 1.001, "torch.float32"),
        (numpy.tanh(X), numpy.where(X > 1, numpy.nan, numpy.tanh(X)), "torch.float32"),
        (numpy.tanh(X), numpy.tanh(X).T, "torch.float32"),
        (numpy.tanh(X), numpy.tanh(X) * 1.01, "torch.bfloat16"),
        (numpy.arange(4), numpy.array([0, 1, 3, 2]), ""),
    ],
)
def test_a_wrong_result_of_the_same_inputs_is_named(tmp_path: Path, right: object, port: object, dtype: str) -> None:
    good = {"relu/1": ([X], [X * (X > 0)])}
    assert wrong(tmp_path, {**good, "tanh/2": ([X], [right])}, {**good, "tanh/2": ([X], [port])}, dtype) == ["tanh/2"]


@pytest.mark.parametrize(
    ("operator", "inputs", "results"),
    [
        ("tanh", ([X], [X]), (numpy.tanh(X), numpy.tanh(X) * (1 + 1e-6))),
        ("tanh", ([X], [X * 1.1]), (numpy.tanh(X), numpy.tanh(X * 1.1))),
        ("bernoulli_", ([X], [X]), (X > 0, X < 0)),
        ("empty_like", ([X], [X]), (X, X * 0)),
        ("gelu", ([X], [X]), (gelu(X, tanh=False), gelu(X, tanh=True))),
        # A sum of which nothing but rounding is left.
        ("sum", ([X], [X]), (numpy.float32(3e-8), numpy.float32(-5e-8))),
        ("mm", ([X * 100, X.T], [X * 100, X.T]), (numpy.float32(1e-4), numpy.float32(1.4e-4))),
    ],
)
def test_what_is_no_fault_is_not_named(
    tmp_path: Path, operator: str, inputs: tuple[list[object], list[object]], results: tuple[object, object]
) -> None:
    one, other = ({f"{operator}/1": (given, [made])} for given, made in zip(inputs, results, strict=True))
    assert wrong(tmp_path, one, other) == []


def test_what_was_not_judged_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write(
        tmp_path / "a.h5",
        {"tanh/1": ([X], [numpy.tanh(X)]), "exp/1": ([X], [X]), "normal_/1": ([X], [X]), "cudnn_rnn/1": ([X], [X])},
    )
    other = write(
        tmp_path / "b.h5", {"tanh/1": ([X], [numpy.tanh(X)]), "exp/1": ([X * 2], [X]), "normal_/1": ([X], [-X])}
    )
    found = compare_dumper_files(one, other)
    assert found.count_unjudged() == {INHERITED: 1, RANDOM: 1}
    assert found.alone == ({"cudnn_rnn": 1}, {})
    assert main(["compare", str(one), str(other), "--csv", str(tmp_path / "r.csv")]) == 0
    said = capsys.readouterr().out
    assert "1 result of operators with the same inputs judged" in said
    assert "1 calls that only the first file has (cudnn_rnn)" in said
    assert len((tmp_path / "r.csv").read_text().splitlines()) == 4


def test_two_dumps_of_other_inputs_are_undecided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write(tmp_path / "a.h5", {"exp/1": ([X], [X])})
    other = write(tmp_path / "b.h5", {"exp/1": ([X * 2], [X])})
    assert main(["compare", str(one), str(other)]) == 4
    assert "load_file_path" in capsys.readouterr().out


def test_what_is_no_dump_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write(tmp_path / "a.h5", {"exp/1": ([X], [X])})
    (tmp_path / "b.h5").write_bytes(b"no HDF5")
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["exp"] = 1
    for other in ("b.h5", "c.h5", "missing.h5"):
        assert main(["compare", str(good), str(tmp_path / other)]) == 2
        assert other in capsys.readouterr().err
    assert main(["compare", str(good), str(good), "--step", "1"]) == 2


@pytest.mark.processes
def test_the_dumper_works_without_an_npu(tmp_path: Path) -> None:
    """The guide's first step is in the GPU environment."""
    program = (
        "import torchport.legacy, torch\n"
        "x = torch.arange(6.).reshape(2, 3)\n"
        f"with torch.utils.dumper(use_dump=True, dump_path={str(tmp_path / 'one.h5')!r}):\n    y = torch.tanh(x) @ x.T\n"
        f"with torch.utils.dumper(use_dump=True, dump_path={str(tmp_path / 'two.h5')!r},"
        f" load_file_path={str(tmp_path / 'one.h5')!r}):\n    y = torch.tanh(x) @ x.T\n"
    )
    environment = {"PATH": os.environ["PATH"], "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    found = compare_dumper_files(tmp_path / "one.h5", tmp_path / "two.h5")
    assert {row.operator for row in found.judged} >= {"tanh", "mm"}
    assert found.wrong == []


def test_json_has_the_wrong_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write(tmp_path / "a.h5", {"exp/1": ([X], [X])})
    other = write(tmp_path / "b.h5", {"exp/1": ([X], [X * 1.1])})
    assert main(["compare", str(one), str(other), "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)["wrong"]
    assert (row["operator"], row["call"], row["result"]) == ("exp", 1, 0)
