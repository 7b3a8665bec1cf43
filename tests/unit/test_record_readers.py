"""`torchport record text`, `extract` and `import`: what they give of a recording, and what they say of wrong input."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from test_operator_files import write

from torchport import cli
from torchport.record.operators.reading import Operators


@pytest.fixture
def recording(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rec").mkdir()
    return write(Path("rec"), 2)


def said(capsys, *words: str) -> tuple[int, str, str]:
    status = cli.main(["record", *words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_text_has_nothing_that_changes_by_chance(recording, capsys):
    status, text, _ = said(capsys, "text", "rec", "--step", "1")
    assert status == 0
    assert text.splitlines() == [
        "forward aten::add.Tensor (layer.0 train.py:3)",
        "    input 0: float32[2, 3] weight min 0 max 5 mean 2.5 l2 7.4162",
        "    input 1: float32[2, 3] min 0 max 5 mean 2.5 l2 7.4162",
        "    output 0: float32[2, 3] weight min 0 max 5 mean 2.5 l2 7.4162",
        "backward aten::layer_norm ()",
        "    input 0: bfloat16[2] min 1 max 1 mean 1 l2 1 nans 1",
    ]
    assert said(capsys, "text", "rec", "--step", "0")[1] == text, "equal steps have the same text"
    shown = said(capsys, "show", "rec", "--step", "1")[1]
    assert shown.splitlines()[0] == "0 forward aten::add.Tensor (layer.0 train.py:3)"
    status, plain, _ = said(capsys, "text", "rec", "--step", "1", "--json")
    assert (status, [call["name"] for call in json.loads(plain)]) == (0, ["aten::add", "aten::layer_norm"])


def test_a_case_has_what_the_call_had(recording, capsys):
    status, line, _ = said(capsys, "extract", "rec", "--step", "0", "--op", "aten::add", "-o", "case")
    assert (status, line) == (0, "aten::add of step 0 is in case\n")
    assert sorted(os.listdir("case")) == ["call.json", "input0.npy", "input1.npy", "output0.npy"]
    call = json.loads(Path("case/call.json").read_text())
    assert (call["name"], call["arguments"], call["step"], call["about"]["level"]) == (
        "aten::add", [{"t": 0}, {"t": 1}, 1], 0, "tensor",
    )  # fmt: skip
    assert numpy.load("case/input1.npy").tolist() == [[0, 2, 4], [1, 3, 5]], "as its strides say"
    status, _, _ = said(capsys, "extract", "rec", "--step", "1", "--op", "layer_norm:0", "-o", "bits")
    assert status == 0
    assert numpy.load("bits/input0.npy").tolist() == [0x3F80, 0x7FC0], "bfloat16 as its bits"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("text", "rec"), "text needs --step"),
        (("text", "rec", "--step", "7"), "step 7 was not recorded; there are 0 to 1"),
        (("text", "rec", "--step", "0", "--rank", "1"), "rec has no operators of rank 1"),
        (("text", "nothing", "--step", "0"), "nothing is not a recording"),
        (("text", "rec", "--step", "0", "-o", "x"), "text takes no -o"),
        (("extract", "rec", "--step", "0", "--op", "add"), "extract needs -o"),
        (("extract", "rec", "--step", "0", "--op", "ad", "-o", "x"), "Near are add"),
        (
            ("extract", "rec", "--step", "0", "--op", "add:3", "-o", "x"),
            "calls add 1 times, and there is no add:3",
        ),
        (("extract", "rec", "--step", "0", "--op", "add", "-o", "rec"), "rec is not empty"),
        (("import", "rec", "-o", "x"), "rec has no dump file of CANN's"),
        (("import", "nothing", "-o", "x"), "nothing has no dump file of CANN's"),
        (("import", "rec", "-o", "rec"), "rec is not empty"),
        (("import", "rec", "--step", "1", "-o", "x"), "import takes no --step"),
    ],
)
def test_wrong_input(recording, capsys, words, sentence):
    status, out, error = said(capsys, *words)
    assert (status, out, sentence in error) == (2, "", True), error
    assert not Path("x").exists()


def dump(values: list[float], total: int) -> bytes:
    """An operator's dump as dump_task.proto has it: an input of floats and an output of an int64."""
    output = bytes([8, 8, 16, 2, 26, 3, 10, 1, 1, 48, 8])
    taken = bytes([8, 1, 16, 2, 26, 3, 10, 1, len(values), 40, 4 * len(values)])
    header = bytes([26, len(output)]) + output + bytes([34, len(taken)]) + taken
    return struct.pack("<Q", len(header)) + header + struct.pack(f"<{len(values)}fq", *values, total)


def imported(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torchport", "record", "import", *words],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_dumps_of_cann_become_a_recording(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Path("dump/20261123/0")
    folder.mkdir(parents=True)
    (folder / "Sum.Sum_Op.with.dots.4.11.1700000000000200").write_bytes(dump([1.5, -2.0, float("nan")], 7))
    (folder / "Cast.Cast_1.3.11.1700000000000100").write_bytes(dump([4.0], 1))
    (folder / "mapping.csv").write_text("nothing of ours")
    (folder / "Folder.x.3.11.1700000000000100").mkdir()
    ended = imported("dump", "-o", "out")
    assert (ended.returncode, ended.stderr) == (0, "torchport record: 2 operators in out\n")
    with Operators.read("out").rank(0).step(0) as step:
        first, second = step.calls()  # in the order of their times
        assert (first.name, second.name, second.source) == ("cann::Cast", "cann::Sum", "Sum_Op.with.dots")
        assert second.inputs[0].values()[:2].tolist() == [1.5, -2.0]
        assert (second.inputs[0].statistics.nans, second.outputs[0].values().tolist()) == (1, [7])
        assert step.about["recorder"] == "cann"


@pytest.mark.slow
def test_dumps_that_are_damaged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("dump").mkdir()
    name = "Sum.Sum_1.4.11.1700000000000200"
    for number, data in enumerate([b"", dump([1.0], 1)[:-3], b"\xff" * 200, b"pickle"]):
        Path("dump", name).write_bytes(data)
        ended = imported("dump", "-o", f"out{number}")
        assert (ended.returncode, name in ended.stderr) == (2, True), ended.stderr
        assert "Traceback" not in ended.stderr and not Path(f"out{number}").exists()
    Path("dump", name).unlink()
    os.symlink("nowhere", Path("dump", name))
    ended = imported("dump", "-o", "out")
    assert (ended.returncode, "cannot be read" in ended.stderr) == (2, True), ended.stderr
