"""Cases of single operators: pytest files that hold what they say, and fail where an operator is wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy
import pytest
from test_pairs import Recorded

from torchport.cli import main
from torchport.compare import case
from torchport.errors import TorchportError

pytestmark = pytest.mark.processes


def passed(folder, *cases):
    """By case, which of its tests passed, failed and were skipped; and what was said. One process for all: it imports
    torch."""
    files = [f"{name}/test_case.py" for name in cases]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA", "--import-mode=importlib", *files]
    ended = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "DEVICE": "cpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"},
    )
    said = {name: {} for name in cases}
    for word, place in re.findall(r"^(PASSED|FAILED|SKIPPED) (\S+::\S+)", ended.stdout, re.M):
        said[place.partition("/")[0]][place.rpartition("::")[2]] = word
    return said, ended.stdout


X = numpy.linspace(-2, 2, 12, dtype=numpy.float32).reshape(3, 4)


def recorded(folder, out):
    made = Recorded().tensor("x", X).tensor("y", out)
    return made.call("tanh", "x", "y", arguments='[{"t":0}]', module="net.act").write(folder).path


def test_cases_pass_where_an_operator_is_right_and_fail_where_it_is_wrong(tmp_path, capsys):
    good = recorded(tmp_path / "good", numpy.tanh(X.astype(float)))
    wrong = recorded(tmp_path / "wrong", numpy.tanh(X) * 1.001)
    made = case.of_call(good, 0, 0, "tanh", tmp_path / "a")
    assert (made["name"], made["module"], made["reference"]) == ("aten::tanh", "net.act", "")
    case.of_call(wrong, 0, 0, "aten::tanh:0", tmp_path / "b")
    words = ["--operator", "aten::gelu", "--input", "4x32:bfloat16:-5:5", "-o", str(tmp_path / "gelu"), "--json"]
    assert main(["case", *words]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["inputs"] == [{"shape": [4, 32], "stride": [32, 1], "dtype": "bfloat16", "device": "cpu"}]
    # An NPU's GELU is the tanh form.
    assert made["reference"] == "torchport.record.oracles.gelu:gelu"
    said, text = passed(tmp_path, "a", "b", "gelu")
    right = {"test_forward": "PASSED", "test_backward": "PASSED"}
    assert said == {
        "a": {"test_recorded": "PASSED", **right},
        "b": {"test_recorded": "FAILED", **right},
        "gelu": right,
    }, text
    assert "recorded result 0 is 0.001 off" in text


def test_a_spec_gives_the_same_tensors_again(tmp_path):
    spec = {"operator": "aten::gelu", "inputs": [{"shape": [4, 32], "dtype": "bfloat16", "range": [-5, 5]}]}
    bits = []
    for name in ("one", "again"):
        assert case.of_spec(spec, tmp_path / name)["arguments"] == [{"t": 0}]
        bits.append(numpy.load(tmp_path / name / "input0.npy"))
    values = (bits[0].astype(numpy.uint32) << 16).view(numpy.float32)
    assert -5 <= values.min() < -3 < 3 < values.max() <= 5
    assert numpy.array_equal(*bits)


def test_bfloat16_is_rounded_to_the_nearest():
    values = numpy.array([1.0, 1.0 + 2.0**-8, 1.0 + 2.0**-8 + 2.0**-12, -3.0])
    bits = case._bfloat16(values)
    assert (bits.astype(numpy.uint32) << 16).view(numpy.float32).tolist() == [1.0, 1.0, 1.0 + 2.0**-7, -3.0]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"operator": "gelu", "inputs": []}, "an operator with its namespace"),
        ({"operator": "aten::gelu"}, "a list of inputs"),
        ({"operator": "aten::gelu", "inputs": [{"shape": 3, "dtype": "float32"}]}, "needs a shape"),
        ({"operator": "aten::gelu", "inputs": [{"shape": [3], "dtype": "float7"}]}, "none that can be drawn"),
        ({"operator": "aten::gelu", "inputs": [{"shape": [3], "dtype": "float32", "range": [2, 1]}]}, "two numbers"),
    ],
)
def test_specs_that_say_nothing(tmp_path, spec, said):
    with pytest.raises(TorchportError, match=said):
        case.of_spec(spec, tmp_path / "case")
    assert not (tmp_path / "case").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing was given"),
        (["rec", "--operator", "aten::gelu"], "DIR and --operator"),
        (["rec"], "which call?"),
        (["--operator", "aten::gelu", "--op", "gelu"], "--op is for a recorded call"),
        (["--operator", "aten::gelu", "--input", "4x32"], "is not SHAPE:DTYPE"),
    ],
)
def test_arguments_that_say_nothing(tmp_path, capsys, words, said):
    assert main(["case", *words, "-o", str(tmp_path / "case")]) == 2
    assert said in capsys.readouterr().err
