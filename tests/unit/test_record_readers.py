"""`torchport record text`, `extract` and `import`: what they give of a recording, and what they say of wrong input."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import h5py
import numpy
import pytest
from test_operator_files import write

from torchport import cli
from torchport.record.operators import listing
from torchport.record.operators.reading import Operators
from torchport.record.operators.wanted import Wanted


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
        "    arguments: t0, t1, 1",
        "    input 0: float32[2, 3] weight min 0 max 5 mean 2.5 l2 7.4162",
        "    input 1: float32[2, 3] min 0 max 5 mean 2.5 l2 7.4162",
        "    output 0: float32[2, 3] weight min 0 max 5 mean 2.5 l2 7.4162",
        "backward aten::layer_norm ()",
        "    input 0: bfloat16[2] min 1 max 1 mean 1 l2 1 nans 1",
    ]
    assert said(capsys, "text", "rec", "--step", "0")[1] == text, "equal steps have the same text"
    shown = said(capsys, "show", "rec", "--step", "1")[1]
    assert shown.splitlines()[0] == "0 forward aten::add.Tensor (layer.0 train.py:3) #7"
    status, plain, _ = said(capsys, "text", "rec", "--step", "1", "--json")
    assert (status, [call["name"] for call in json.loads(plain)]) == (0, ["aten::add", "aten::layer_norm"])


def test_arguments_are_words(recording):
    """What is no tensor, as people read it; tensors by their places, long lists of them by the ends."""
    tensors = [{"t": place} for place in range(4)]
    values = [tensors, None, {"dtype": "float16"}, {"float": "-inf"}, True, "mean", [1, 2], {"a": 1, "b": 2}]
    call = {
        "index": 3,
        "name": "aten::x",
        "overload": "",
        "phase": "backward",
        "module": "",
        "source": "",
        "sequence": 5,
        "node": "XBackward0",
        "arguments": values,
        "inputs": [],
        "outputs": [],
        "written": [],
    }
    shown = '    arguments: [t0 to t3], -, float16, -inf, true, "mean", [1, 2], '
    assert list(listing.call_lines(call, numbers=True)) == ["3 backward aten::x () #5 XBackward0", shown]
    assert list(listing.call_lines(call, numbers=False)) == ["backward aten::x () XBackward0", shown]
    call["arguments"] = [{"t": 0}, [{"t": 1}, None]]
    assert len(list(listing.call_lines(call, numbers=False))) == 1, "tensors have lines of their own"


def change_about(path: Path, **fields: object) -> None:
    with h5py.File(path, "a") as file:
        about = {**json.loads(file["about"][()]), **fields}
        del file["about"]
        file.create_dataset("about", data=numpy.bytes_(json.dumps(about).encode()))


def test_show_says_how_it_was_recorded(recording, capsys):
    shown = said(capsys, "show", "rec")[1]
    assert "rank 0: operators of steps 0 to 1: 4 calls" in shown
    assert "  level tensor\n" in shown
    fields = {"recorder": "mode", "without": "no library", "filters": {"module": ["layer4", "fc"]}}
    change_about(recording / "operators/rank0/000000.h5", **fields)
    lines = said(capsys, "show", "rec")[1]
    assert (
        "  level tensor, noted in Python, as the library could not be used: no library, only module=layer4 or fc\n"
        in lines
    )
    wrong = {"recorder": ["hook"], "without": 3, "filters": [1], "level": {"a": 1}}
    change_about(recording / "operators/rank0/000000.h5", **wrong)
    status, lines, _ = said(capsys, "show", "rec")
    assert (status, "level" in lines) == (0, False), "what we do not write is not shown"


def test_show_says_why_there_are_no_operators(recording, capsys):
    for path in recording.rglob("*.h5"):
        path.unlink()
    (journal,) = recording.glob("processes/*/steps.jsonl")
    kept = [line for line in journal.read_text().splitlines() if "operators" not in json.loads(line)["kind"]]
    journal.write_text("\n".join([*kept, json.dumps({"kind": "note", "text": "the disk was full"})]) + "\n")
    status, lines, _ = said(capsys, "show", "rec")
    assert (status, lines.splitlines()[1:]) == (0, ["no operators were recorded", "note: the disk was full"])


def test_filters_that_match_nothing_are_said_with_near_names():
    modules, operators = ["", "layer1", "layer1.0.conv", "fc"], ["aten::convolution", "aten::relu"]

    def found(*words: str, world: int = 2) -> list[str]:
        return Wanted.from_words("statistics", words).describe_unmatched(modules, operators, world)

    assert found() == found("module=layer1", "operator=relu", "operator=aten::conv*", "rank=1", "step=7") == []
    assert found("module=layer1.0", "module=layer1.*") == [], "a prefix counts for what is inside"
    assert found("module=layr1", "module=fc") == [
        "no module of the first step matches module=layr1: near are layer1, layer1.0.conv"
    ]
    assert found("operator=convolutoin") == [
        "no operator of the first step matches operator=convolutoin: near are convolution, aten::convolution"
    ]
    assert found("module=zzz") == [
        "no module of the first step matches module=zzz; there are fc, layer1, layer1.0.conv"
    ]
    many = Wanted.from_words("statistics", ["module=zzz"]).describe_unmatched(map(str, range(11)), [], 1)
    assert many == ["no module of the first step matches module=zzz; there are 11 names"]
    assert found("rank=2", "rank=5-6") == ["there is no rank=2 or 5-6: the run has 2, counted from 0"]


def test_a_case_has_what_the_call_had(recording, capsys):
    status, line, _ = said(capsys, "extract", "rec", "--step", "0", "--op", "aten::add", "-o", "case")
    assert (status, line) == (0, "aten::add of step 0 is in case\n")
    assert sorted(os.listdir("case")) == ["call.json", "input0.npy", "input1.npy", "output0.npy"]
    call = json.loads(Path("case/call.json").read_text())
    assert (call["name"], call["arguments"], call["step"], call["about"]["level"]) == (
        "aten::add",
        [{"t": 0}, {"t": 1}, 1],
        0,
        "tensor",
    )
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
        (("extract", "rec", "--step", "0", "--op", "add:3", "-o", "x"), "calls add 1 times, and there is no add:3"),
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
        # torch_npu is there, and no CANN: torch alone would fail to load it.
        env={name: value for name, value in os.environ.items() if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.processes
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


@pytest.mark.recorded
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
