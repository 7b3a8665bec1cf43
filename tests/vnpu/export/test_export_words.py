"""Sentences of `torchport export`: each has the line of the model, the inputs that were tried, and what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

MODELS = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
class Branch(Net):
    def forward(self, x):
        x = self.a(x)
        return x * 2 if x.abs().sum() > 1e6 else x
class Celu(Net):
    def forward(self, x):
        return nn.functional.celu(self.a(x))
class One(Net):
    def forward(self, x):
        return self.a(x)[x[:2, 0] > 9]
class Nothing(Net):
    def forward(self, x):
        return self.a(x)[x[:, 0] > 1e9]
class Same(Net):
    def forward(self, x):
        return {"x": self.a(x), "more": "text"}
"""
PROGRAM = """
import dataclasses, io, json, sys, torch, numpy
from contextlib import redirect_stdout
from pathlib import Path
sys.path[:0] = ["."]
from torchport.checkpoints import guarded
from torchport.errors import TorchportError
from torchport.export import cases, checking, child, exporting, external, loading
from torchport.export.job import Input, Job
import models
child._say = lambda text: None
answers = {}

def refused(call):
    try:
        call()
    except TorchportError as error:
        return f"{error.message} | {error.hint}"
    return "nothing"

def flat(name):
    torch.manual_seed(0)
    return exporting.Flat(getattr(models, name)().eval().requires_grad_(False), ["x"]).eval()

def job(name, **options):
    return Job(f"models:{name}", (Input("x", (2, 4)),), **options)

def exported(name, **options):
    return child._exported(flat(name), job(name, **options), Path("m.onnx"))

for opset in (11, 18):
    answers[f"branch {opset}"] = exported("Branch", opset=opset)
    answers[f"assumed {opset}"] = exported("Branch", opset=opset, assumed=("models.py:11",))["word"]
numpy.savez("large.npz", x=numpy.full((3, 4), 1e7, "f"))
answers["sample"] = exported("Branch", samples=("large.npz",))
numpy.savez("other.npz", y=numpy.ones((3, 4), "f"))
numpy.savez("wide.npz", x=numpy.ones((3, 5), "f"))
Path("text.npz").write_text("no numbers")
for name in ("other.npz", "wide.npz", "text.npz", "absent.npz"):
    answers[name] = refused(lambda: exported("Branch", samples=(name,)))
answers["celu"] = refused(lambda: exported("Celu"))
answers["batch"] = refused(lambda: exported("One"))
answers["nothing"] = refused(lambda: exported("Nothing", opset=16))
answers["same name"] = exported("Same")
answers["names"] = refused(lambda: exported("Same", outputs=("x",)))
made = flat("Same")
made(torch.ones(1, 4))
answers["left out"] = made.left_out

def weights(**names):
    torch.save(names, "q.pth")
    return refused(lambda: loading.load_weights(models.Net(), guarded.read_in_subprocess(Path("q.pth")).parts[""], job("Net")))

one = torch.ones(4)
answers["gptq"] = weights(**{"a.qweight": one, "a.scales": one})
answers["ao"] = weights(**{"a.scale": one, "a.zero_point": one, "a.weight": one})
answers["bnb"] = weights(**{"a.weight": one, "a.weight.absmax": one, "a.bias": one})
answers["float"] = weights(**{"a.weight": torch.ones(4, 4), "b.bias": one})

exporting.LARGEST = 10  # bytes: every model has its weights apart
large = exported("Celu", opset=16)
answers["large"] = [large["word"], large["weights_file"], sorted(path.name for path in Path().glob("m.onnx*"))]
import onnx
def broken(change):
    model = onnx.load("m.onnx", load_external_data=False)
    change(model.graph.initializer[0])
    Path("b.onnx").write_bytes(model.SerializeToString())
    return refused(lambda: external.require_contained(Path("b.onnx")))
def point(key, value):
    def change(tensor):
        next(entry for entry in tensor.external_data if entry.key == key).value = value
    return change
answers["elsewhere"] = broken(point("location", "m.onnx.data"))
Path("b.onnx.data").write_bytes(Path("m.onnx.data").read_bytes())
answers["beyond"] = broken(lambda tensor: (point("location", "b.onnx.data")(tensor), point("length", "99999999")(tensor)))
Path("b.onnx.data").unlink()
Path("b.onnx.data").symlink_to("/etc/passwd")
answers["linked"] = broken(point("location", "b.onnx.data"))
data = bytearray(Path("m.onnx.data").read_bytes())
data[2] ^= 64
Path("m.onnx.data").write_bytes(data)
answers["changed weight"] = checking.check_onnx_model(Path("m.onnx"), flat("Celu"), job("Celu")).word
exporting.LARGEST = 10**9
exporting.export_onnx("torchscript", flat("Celu"), job("Celu", opset=16), Path("m.onnx"))
renamed = onnx.load("m.onnx")
for node in renamed.graph.node:
    for place, name in enumerate(node.input):
        node.input[place] = "y" if name == "x" else name
renamed.graph.input[0].name = "y"
onnx.save(renamed, "y.onnx")
answers["lost name"] = refused(lambda: checking.check_onnx_model(Path("y.onnx"), flat("Celu"), job("Celu")))
print("ANSWERS" + json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("words")
    (folder / "models.py").write_text(MODELS)
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("ANSWERS"))
    return json.loads(line.removeprefix("ANSWERS"))


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("other.npz", ["does not hold the inputs x", "numpy.savez"]),
        ("wide.npz", ["x is [3, 5], and --input says [2, 4]"]),
        ("text.npz", ["text.npz cannot be read"]),
        ("absent.npz", ["absent.npz cannot be read: [Errno 2]"]),
        ("celu", ["models.py:14: UnsupportedOperatorError", "(inputs of 2x4)", "A newer opset holds it: --opset 13"]),
        ("batch", ["PyTorch itself cannot run inputs of 3x4: ", "models.py:17: IndexError", "--static"]),
        ("nothing", ["gives empty outputs to all inputs that were tried", "--sample FILE.npz"]),
        ("names", ["--output-names has x twice, or as an input has it"]),
        ("gptq", ["is quantised (GPTQ or AWQ: it has a.qweight)"]),
        ("ao", ["is quantised (torch.ao.quantization: it has a.zero_point)", "before convert()"]),
        ("bnb", ["is quantised (bitsandbytes: it has a.weight.absmax)", "dequantize()"]),
        ("float", ["lacks 1 of the model's 2 names: a.bias (nearest on the other side: b.bias)"]),
        ("elsewhere", ["from another file, 'm.onnx.data', which is not read"]),
        ("beyond", ["b.onnx.data ends inside the weights"]),
        ("lost name", ["wants the inputs y, and y is none of --input's"]),
        ("linked", ["from another file, 'b.onnx.data', which is not read"]),
    ],
)
def test_what_is_refused_is_said(answers: dict, what: str, said: list[str]) -> None:
    for words in said:
        assert words in answers[what]


def test_a_branch_that_nothing_takes_is_undecided(answers: dict) -> None:
    """The dynamo exporter refuses it with the same line."""
    for opset in (11, 18):
        answer = answers[f"branch {opset}"]
        (place,) = answer["places"]
        assert answer["word"] == "undecided" and place["where"].endswith("models.py:11")
        assert answers[f"assumed {opset}"] == "holds"
    assert answers["branch 11"]["newer"] == "No newer opset holds it either."
    assert "models.py:11: " in answers["branch 18"]["refused"]["dynamo"]
    assert "hangs on what the inputs contain" in answers["branch 18"]["refused"]["dynamo"]


def test_a_sample_of_the_user_decides(answers: dict) -> None:
    answer = answers["sample"]
    (row,) = (row for row in answer["rows"] if not row["ok"])
    assert answer["word"] == "does not hold" and row["inputs"] == "large.npz"
    assert row["frozen"][0].endswith("models.py:11 took False in the trace, True here")


def test_an_output_with_the_name_of_an_input(answers: dict) -> None:
    assert {row["output"] for row in answers["same name"]["rows"]} == {"out_x"}
    assert answers["left out"] == ["more (str)"]


def test_weights_in_a_file_of_their_own(answers: dict) -> None:
    assert answers["large"] == ["holds", True, ["m.onnx", "m.onnx.data"]]
    assert answers["changed weight"] == "does not hold"
