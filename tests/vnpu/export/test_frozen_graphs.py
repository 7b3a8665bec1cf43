"""Graphs that hold for the inputs of their trace alone: none of them gets a tick, and no healthy one loses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dependent_networks import CASES, find_marked_line

HERE = Path(__file__).parent
# Of each kind one, for `make test`; `make exports` has all.
QUICK = (
    "topk_threshold_count",
    "sign_branch",
    "long_branch",
    "window_pad",
    "rare_clip",
    "shape_checks",
    "topk_constant",
)
# Healthy in opset 16, and clearly refused in 11, which has no operator for them.
NEWER = {"packed_lstm_tensor", "duration_expand"}
# Frozen where no value is taken from a tensor: by unbind() and, in the symbol of torch.onnx, by pad_packed_sequence;
# or by a list, a length or an array, of which no other value can be tried.
UNNAMED = {"unbind_time", "packed_lstm_untrimmed", "packed_lstm", "tolist_split", "early_exit", "numpy_round_trip"}
PROGRAM = """
import json, sys, torch
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from torchport.errors import TorchportError
from torchport.export import checking, exporting
from torchport.export.job import Job, parse_input, with_dynamic
import dependent_networks
answers = {}
for name in sys.argv[3:]:
    network = dependent_networks.CASES[name]
    parsed = [parse_input(text, number) for number, text in enumerate(network.inputs)]
    job = Job(name, with_dynamic(parsed, network.dynamic, network.static), opset=int(sys.argv[2]))
    model = exporting.Flat(network.make().eval().requires_grad_(False), [one.name for one in job.inputs]).eval()
    try:
        exporting.export_onnx("torchscript", model, job, Path("m.onnx"))
        answers[name] = checking.check_onnx_model(Path("m.onnx"), model, job).to_json()
    except TorchportError as error:
        answers[name] = {"word": "refused", "error": error.message, "places": [], "rows": []}
print("ANSWERS" + json.dumps(answers))
"""


def export(folder: Path, opset: int, *names: str) -> dict:
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", PROGRAM, str(HERE), str(opset), *names]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("ANSWERS"))
    return json.loads(line.removeprefix("ANSWERS"))


def judge(name: str, answer: dict, opset: int) -> None:
    """A frozen graph does not hold or is undecided, with its line; a true one holds."""
    truth = CASES[name].truth
    if truth == "true" and (opset > 11 or name not in NEWER):
        assert answer["word"] == "holds", answer
        assert all(place["state"] != "open" for place in answer["places"])
    elif truth == "true" or truth == "refused":
        assert answer["word"] == "refused"
    else:
        assert answer["word"] != "holds", answer
        line = find_marked_line(CASES[name].make)
        said = [text for row in answer["rows"] for text in row.get("frozen", ())]
        said += [place["where"] for place in answer["places"] if place["state"] == "open"]
        named = {int(text.split(".py:")[1].split()[0]) for text in said}
        assert line in named or name in UNNAMED, (name, line, named)


def test_of_each_kind_one_is_judged(tmp_path: Path) -> None:
    for name, answer in export(tmp_path, 11, *QUICK).items():
        judge(name, answer, 11)


def test_a_value_that_nothing_changes_is_undecided(tmp_path: Path) -> None:
    (answer,) = export(tmp_path, 11, "rare_clip").values()
    (place,) = answer["places"]
    assert (answer["word"], place["state"], place["from"], place["traced"]) == (
        "undecided",
        "open",
        "contents",
        "False",
    )
    assert all(row["ok"] for row in answer["rows"]) and {row["contents"] for row in answer["rows"]} == {True, False}


@pytest.mark.exports
@pytest.mark.parametrize("opset", [11, 16])
def test_all_are_judged(tmp_path: Path, opset: int) -> None:
    answers = export(tmp_path, opset, *CASES)
    for name, answer in answers.items():
        judge(name, answer, opset)
    print(json.dumps({name: answer["word"] for name, answer in answers.items()}))
