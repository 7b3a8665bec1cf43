"""`torchport export`: what must not pass is refused, then what must pass does. Small networks, one process for most."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

ENVIRONMENT = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
FACTORY = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, width=4, noisy=False, slow=False):
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(3, width), nn.BatchNorm1d(width), nn.Linear(width, 2)
        self.noisy = noisy
    def forward(self, x):
        x = torch.relu(self.norm(self.one(x)))
        return {"scores": self.two(nn.functional.dropout(x) if self.noisy else x)}
class Branches(Net):
    # A trace keeps one way alone.
    def forward(self, x):
        return self.one(x) * (2 if x.shape[0] > 2 else 1)
def fails():
    return undefined
def text():
    return "no module"
def waits():
    print("waiting", flush=True)
    import signal; signal.pause()
"""
# Runs in one process what would each be a process of seconds: the parts of the child, without the command around them.
PROGRAM = '''
import json, sys, torch
from pathlib import Path
from torchport.checkpoints import guarded
from torchport.errors import TorchportError
from torchport.export import checking, exporting, loading, npu_forms
from torchport.export.job import Input, Job
sys.path[:0] = [".", sys.argv[1]]
npu_forms.install_npu_forms()
import nets

def job(**options):
    return Job("nets:Net", (Input("x", (2, 3)),), **options)

def refused(call):
    try:
        call()
    except TorchportError as error:
        return f"{error.message} | {error.hint}"
    return "nothing"

def save(change, name="c.pth"):
    torch.manual_seed(1)
    state = nets.Net().state_dict()
    torch.save(change(state), name)
    return guarded.read_in_subprocess(Path(name)).parts[""]

def filled(weights, **options):
    model = loading.make_model(job(**options))
    said = loading.load_weights(model, weights, job(**options))
    return exporting.Flat(model, ["x"]).eval(), said

answers = {}
without = lambda state, name: {key: value for key, value in state.items() if key != name}
answers["missing"] = refused(lambda: filled(save(lambda s: without(s, "two.bias"))))
answers["renamed"] = refused(lambda: filled(save(lambda s: {k.replace("two.", "stage.two."): v for k, v in s.items()})))
answers["half"] = refused(lambda: filled(save(lambda s: {("module." + k if "one" in k else k): v for k, v in s.items()})))
answers["shape"] = refused(lambda: filled(save(lambda s: s), arguments={"width": 5}))
answers["allowed"] = filled(save(lambda s: without(s, "two.bias")), allow_missing=True)[1]["missing"]
answers["counter"] = filled(save(lambda s: without(s, "norm.num_batches_tracked")))[1]["missing"]
answers["fails"] = refused(lambda: loading.make_model(Job("nets:fails", ())))
answers["text"] = refused(lambda: loading.make_model(Job("nets:text", ())))
answers["absent"] = refused(lambda: loading.make_model(Job("nets:Nothing", ())))

weights = save(lambda s: {"module." + k: v for k, v in s.items()})
model, said = filled(weights)
answers["removed"] = said["removed"]
path = Path("model.onnx")
made = exporting.export_onnx("torchscript", model, job(), path)
answers["exported"] = [made["opset"], made["operators"], checking.check_onnx_model(path, model, job()).rows]
import onnx
graph = onnx.load("model.onnx")
answers["names"] = [graph.graph.input[0].name, graph.graph.output[0].name]

def tampered(change):
    other = onnx.load("model.onnx")
    change(other.graph)
    onnx.save(other, "other.onnx")
    return checking.check_onnx_model(Path("other.onnx"), model, job()).rows

def swap(graph):
    """The weights of another training in the file."""
    for weight in graph.initializer:
        if "two.weight" in weight.name:
            values = onnx.numpy_helper.to_array(weight) * 1.001
            weight.CopyFrom(onnx.numpy_helper.from_array(values.astype("f"), weight.name))

answers["swapped"] = tampered(swap)
dead = model.__class__(loading.make_model(job()), ["x"]).eval()
for weight in dead.parameters():
    weight.data.zero_()
answers["zero"] = refused(lambda: checking.check_onnx_model(path, dead, job()))
dead.load_state_dict({k: v.float() * float("nan") if v.is_floating_point() else v for k, v in dead.state_dict().items()})
answers["not finite"] = refused(lambda: checking.check_onnx_model(path, dead, job()))
import numpy
infinite, another = numpy.array([1.0, float("inf"), float("nan")]), numpy.array([1.0, 5.0, float("nan")])
answers["infinite"] = [checking.compare_outputs("y", infinite, infinite, 1e-4)["ok"], checking.compare_outputs("y", infinite, another, 1e-4)["ok"]]
def outside(graph):
    weight = graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    entry = weight.external_data.add()
    entry.key, entry.value = "location", "../../etc/passwd"
other = onnx.load("model.onnx")
outside(other.graph)
Path("other.onnx").write_bytes(other.SerializeToString())
answers["outside"] = refused(lambda: checking.check_onnx_model(Path("other.onnx"), model, job()))
Path("other.onnx").write_bytes(path.read_bytes()[:-100])
answers["cut"] = refused(lambda: checking.check_onnx_model(Path("other.onnx"), model, job()))
import resource
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (300, limits[1]))
answers["full disk"] = refused(lambda: exporting.export_onnx("torchscript", model, job(), Path("other.onnx")))
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
noisy, _ = filled(weights, arguments={"noisy": True})
answers["noisy"] = refused(lambda: checking.check_onnx_model(path, noisy, job()))
half = job(half=True)
model, _ = filled(weights)
model = model.half()
exporting.export_onnx("torchscript", model, half, path)
answers["half precision"] = checking.check_onnx_model(path, model, half).rows
import networks, torch_npu
torch.manual_seed(2)
llama = exporting.Flat(networks.Llama(), ["x"]).eval().requires_grad_(False)
plan = Job("networks:Llama", (Input("x", (2, 16, 32)),))
made = exporting.export_onnx("torchscript", llama, plan, path)
answers["npu model"] = [sorted(made["operators"]), checking.check_onnx_model(path, llama, plan).rows]
class Older(torch.nn.Module):
    """What the exporter writes from opset 12, 13 or 14 on."""
    def forward(self, x):
        heads = x.reshape(x.shape[0], 4, 2, 4)
        scores = torch.einsum("bqhd,bkhd->bhqk", heads, heads) + torch.einsum("bqhd,hd->bhq", heads, self.w).unsqueeze(-1)
        scores = torch.tril(scores) + torch.triu(scores, 1) * 0.5
        return torch.einsum("bhqk,bkhd->bqhd", scores, heads).flatten(2), torch.tile(torch.outer(x[0, 0], self.w[0]), (2, 1))
older = Older()
older.w = torch.randn(2, 4)
older = exporting.Flat(older, ["x"]).eval()
plan = Job("", (Input("x", (2, 4, 8)),))
made = exporting.export_onnx("torchscript", older, plan, path)
answers["older"] = [made["opset"], "Einsum" in made["operators"], checking.check_onnx_model(path, older, plan).rows]
answers["newer"] = refused(lambda: exporting.export_onnx("torchscript", exporting.Flat(torch.nn.CELU(), ["input"]), job(), path))
bert = exporting.Flat(networks.Encoder(), ["ids", "mask"]).eval().requires_grad_(False)
both = {"dtype": "int64", "dynamic": (0, 1)}
plan = Job("networks:Encoder", (Input("ids", (2, 8), below=100, **both), Input("mask", (2, 8), **both)))
exporting.export_onnx("torchscript", bert, plan, path)
answers["bert"] = checking.check_onnx_model(path, bert, plan).rows
try:
    torch_npu.npu_moe_init_routing
except NotImplementedError as error:
    answers["unknown"] = str(error)
answers["no device"] = torch.npu.is_available()
import importlib.util
answers["specs"] = [importlib.util.find_spec(name).name for name in ("torch_npu", "torch.npu")]
print("ANSWERS" + json.dumps(answers))
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("export")
    (made / "nets.py").write_text(FACTORY)
    return made


@pytest.fixture(scope="module")
def answers(folder: Path) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, Path(__file__).parent],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # torch's exporter in C++ may leave a graph in its own buffer of stdout, which is written at the end.
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("ANSWERS"))
    return json.loads(line.removeprefix("ANSWERS"))


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("missing", ["lacks 1 of the model's 9 names: two.bias", "--allow-missing"]),
        ("renamed", ["two.weight (nearest on the other side: stage.two.weight)", "No prefix was stripped"]),
        ("half", ["one.weight (nearest on the other side: module.one.weight)", "lacks 2 of"]),
        ("shape", ["one.weight has [4, 3] in the checkpoint and [5, 3] in the model", "--arguments"]),
        ("fails", ["nets.py:", "NameError: name 'undefined' is not defined"]),
        ("text", ["gives str, not a torch.nn.Module"]),
        ("absent", ["AttributeError", "Nothing"]),
        ("outside", ["another file, '../../etc/passwd', which is not read"]),
        ("cut", ["other.onnx is no ONNX model"]),
        ("full disk", ["the model cannot be written: File too large", "has room"]),
        ("noisy", ["two answers to the same input", "dropout"]),
        ("zero", ["the same output to every input", "torchport checkpoint show"]),
        ("not finite", ["the same output to every input"]),
        ("unknown", ["torch_npu.npu_moe_init_routing has no plain form", "npu_rms_norm"]),
    ],
)
def test_what_is_refused(answers: dict, what: str, said: list[str]) -> None:
    for words in said:
        assert words in answers[what]


def test_swapped_weights_do_not_hold(answers: dict) -> None:
    """A thousandth more in one layer: each batch says by how much."""
    assert [row["ok"] for row in answers["swapped"]] == [False, False, False]
    assert all(2e-4 < row["relative"] < 2e-3 and row["output"] == "scores" for row in answers["swapped"])


def test_an_infinity_is_no_other_number(answers: dict) -> None:
    assert answers["infinite"] == [True, False]


def test_what_is_exported_holds(answers: dict) -> None:
    opset, operators, rows = answers["exported"]
    assert opset == 11 and set(operators) <= {"BatchNormalization", "Gemm", "Relu"}
    assert [row["sizes"] for row in rows] == ["1x3", "3x3", "8x3"]
    assert all(row["ok"] and row["relative"] < 1e-6 and row["largest"] > 0.01 for row in rows)
    assert answers["names"] == ["x", "scores"]
    assert (answers["removed"], answers["allowed"], answers["counter"]) == (["module."], ["two.bias"], [])
    assert all(row["ok"] and row["relative"] < 1e-2 for row in answers["half precision"])
    assert answers["no device"] is False
    # transformers, accelerate, diffusers and peft begin with it; it raises for a module without a spec.
    assert answers["specs"] == ["torch_npu", "torch.npu"]


def test_functions_of_torch_npu_become_operators_of_onnx(answers: dict) -> None:
    operators, rows = answers["npu model"]
    assert {"MatMul", "Softmax", "Sigmoid"} <= set(operators) and not any(":" in name for name in operators)
    assert all(row["ok"] for row in rows) and len(rows) == 3


def test_functions_that_older_opsets_lack(answers: dict) -> None:
    opset, einsum, rows = answers["older"]
    assert (opset, einsum) == (11, False)
    assert all(row["ok"] for row in rows) and len(rows) == 6
    assert "celu' to ONNX opset version 11 is not supported" in answers["newer"]


def test_two_dynamic_axes_and_two_outputs(answers: dict) -> None:
    """Attention in opset 11, which has no operator of its own for it; the last case has other lengths."""
    assert [row["sizes"] for row in answers["bert"][::2]] == ["1x8 1x8", "3x8 3x8", "8x8 8x8", "3x5 3x5"]
    assert {row["output"] for row in answers["bert"]} == {"hidden", "pooled"}
    assert all(row["ok"] for row in answers["bert"])


def test_command(folder: Path, answers: dict) -> None:
    """Once as users call it; `answers` has left c.pth. Nothing else is in the folder afterwards."""
    before = {path.name for path in folder.iterdir()} - {"__pycache__"}
    fake = folder.parent / "bin"
    fake.mkdir()
    (fake / "atc").write_text('#!/bin/sh\necho "$@" > ../bin/words; echo "E19010: No parser"; exit 1\n')
    (fake / "atc").chmod(0o755)
    environment = {**ENVIRONMENT, "PATH": f"{fake}:{os.environ['PATH']}"}
    words = [
        "c.pth",
        "--model",
        "nets:Net",
        "--input",
        "x:1,3",
        "-o",
        "out.onnx",
        "--soc",
        "Ascend310P3",
        "--om",
        "o.om",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "torchport", "export", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and "atc has ended with status 1: E19010: No parser" in done.stderr
    assert "exporter   torchscript, opset 11" in done.stdout and done.stdout.count("holds") == 3
    given = (fake / "words").read_text()
    assert "--input_shape=x:1,3" in given and "--soc_version=Ascend310P3" in given
    assert "--precision_mode=allow_fp32_to_fp16" in given and "--output=o " in given
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == before | {"out.onnx"}


def test_a_model_that_does_not_hold_is_not_written(folder: Path, answers: dict) -> None:
    """By the whole command: the table names the batches, and what was there stays."""
    (folder / "kept.onnx").write_text("mine")
    words = ["c.pth", "--model", "nets:Branches", "--input", "x:1,3", "-o", "kept.onnx", "--force"]
    done = subprocess.run(
        [sys.executable, "-m", "torchport", "export", *words],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "kept.onnx was not written" in done.stderr
    rows = {line.split()[0]: "DOES NOT HOLD" in line for line in done.stdout.splitlines() if "output  " in line}
    # 2 lies beside the number that the batch is compared with.
    assert rows == {"1x3": False, "2x3": False, "3x3": True, "8x3": True}
    assert "frozen: " in done.stdout and "nets.py:15 took False in the trace, True here" in done.stdout
    assert (folder / "kept.onnx").read_text() == "mine" and not list(folder.glob(".kept*"))
    (folder / "kept.onnx").unlink()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--input", "3", "-o", "kept.onnx"], "kept.onnx exists"),
        (["--input", "3"], "either -o FILE or --check FILE"),
        (["--input", "x:3:float5", "-o", "a.onnx"], "[NAME:]SIZES"),
        (["--input", "3", "-o", "a.onnx", "--soc", "910"], "no name of a chip"),
        (["--input", "x:1,3", "--dynamic", "y:0", "-o", "a.onnx"], "names no axes of an input"),
        (["--input", "3", "--opset", "x", "-o", "a.onnx"], "no opset"),
        (["--input", "3", "-o", "no/a.onnx"], "there is no folder no"),
    ],
)
def test_usage(tmp_path: Path, monkeypatch, capsys, words: list[str], said: str) -> None:
    from torchport.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept.onnx").write_text("mine")
    assert main(["export", "c.pth", "--model", "nets:Net", *words]) == 2
    assert said in capsys.readouterr().err and (tmp_path / "kept.onnx").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["kept.onnx"]


def test_control_c_leaves_nothing(folder: Path, answers: dict) -> None:
    before = sorted(path.name for path in folder.iterdir())
    words = ["export", "c.pth", "--model", "nets:waits", "--input", "1,3", "-o", "never.onnx"]
    running = subprocess.Popen(
        [sys.executable, "-m", "torchport", *words],
        cwd=folder,
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
        # What a shell starts in the background ignores Ctrl-C, and so do its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )

    def waiting() -> bool:
        assert running.poll() is None
        return any("waiting" in path.read_text() for path in folder.glob(".never.onnx.*/said"))

    until(waiting)
    running.send_signal(signal.SIGINT)
    assert "interrupted" in running.communicate()[1] and running.returncode == 130
    assert sorted(path.name for path in folder.iterdir()) == before
