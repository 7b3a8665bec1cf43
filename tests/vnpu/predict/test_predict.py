"""`torchport predict` on small scripts: what it says of one that fits, and of those that it cannot predict."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

TRAIN = """
import argparse, torch
from torch import nn
words = argparse.ArgumentParser()
words.add_argument("--batch-size", type=int, default=32)
words = words.parse_args()
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(512, 2048), nn.Linear(2048, 512)
    def forward(self, x):
        return x + self.second(torch.relu(self.first(x)))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.square().mean()
model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(1000000):
    loss = model(torch.ones(words.batch_size, 512).cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 1 == 0:
        print(loss.item())
"""
BIG = TRAIN.replace("32)", "1 << 22)").replace("torch.ones(words", "torch.ones(1, device='cuda').expand(words")
ENDLESS = TRAIN.replace("for step in range(1000000):", "while torch.ones(1).cuda().mul(2).item() == 0: pass\nif 0:")


AT_HOME = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters())
while True:
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""
# It leaves its loop where a loss is zero, as all are in a dry run.
SATISFIED = TRAIN.replace("    optimizer.zero_grad()", "    if loss.item() < 1e-3: break\n    optimizer.zero_grad()")


def predicted(folder: Path, script: str, *words: str) -> subprocess.CompletedProcess[str]:
    path = folder / "train.py"
    path.write_text(script)
    command = [sys.executable, "-m", "torchport", "predict", str(path), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def test_a_script_that_fits(tmp_path: Path) -> None:
    done = predicted(
        tmp_path, TRAIN, "--soc", "Ascend910B3", "--json", "--html", "report.html", "--", "--batch-size", "64"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["fits"] and found["soc"] == "Ascend910B3" and found["steps"] == 3
    weights = 4 * (4 * (512 * 2048 * 2 + 2048 + 512))
    owners = found["one"]["peak"]["owners"]
    assert owners["weights"] == weights
    assert owners["gradients"] == weights
    assert 2 * weights <= owners["optimizer state"] <= 2 * weights + 4096
    assert sum(owners.values()) + found["one"]["peak"]["rounding"] == found["one"]["peak"]["allocated"]
    step = found["one"]["step"]
    assert 0 < found["one"]["low"] <= step["time"] <= found["one"]["high"]
    assert found["one"]["samples"] == 64
    assert found["one"]["throughput"] == pytest.approx(64e3 / step["time"])
    assert "Nothing validates" in found["validated"]
    (read,) = found["reads"]
    assert (read["path"], read["call"], read["count"]) == (str(tmp_path / "train.py"), "item", 2)
    assert TRAIN.splitlines()[read["line"] - 1].strip() == "print(loss.item())"
    page = (tmp_path / "report.html").read_text()
    assert "<svg" in page and "aclnnAddmm" in page and not (tmp_path / "report.html.part").exists()


@pytest.mark.predictions
def test_the_same_run_gives_the_same_prediction_and_a_larger_batch_another(tmp_path: Path) -> None:
    first, again, larger = (
        json.loads(predicted(tmp_path, TRAIN, "--json", "--", "--batch-size", size).stdout)["one"]
        for size in ("4096", "4096", "16384")
    )
    assert first["step"] == again["step"] and first["peak"] == again["peak"]
    assert larger["step"]["time"] > 1.5 * first["step"]["time"]
    assert larger["peak"]["allocated"] > first["peak"]["allocated"]


@pytest.mark.predictions
def test_a_compiled_model_is_that_without_its_compiler(tmp_path: Path) -> None:
    script = TRAIN.replace("Net().cuda()", "torch.compile(Net().cuda())")
    compiled, plain = (json.loads(predicted(tmp_path, text, "--json").stdout) for text in (script, TRAIN))
    assert compiled["compiled"] and not plain["compiled"]
    assert compiled["one"]["step"] == plain["one"]["step"] and compiled["one"]["peak"] == plain["one"]["peak"]


@pytest.mark.predictions
def test_out_of_memory_says_what_was_tried(tmp_path: Path) -> None:
    done = predicted(tmp_path, BIG, "--json", "--", "--batch-size", str(1 << 22))
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert not found["fits"] and "out of memory" in found["failure"]
    tried = {row["change"]: row["fits"] for row in found["advice"]}
    assert tried["recomputation of the repeated blocks (torch.utils.checkpoint)"] in (True, False)
    assert any(change.startswith("--batch-size") and fits for change, fits in tried.items())


@pytest.mark.predictions
def test_a_data_loader_is_beside_the_step_or_bounds_it(tmp_path: Path) -> None:
    loader = """
import time
class Images(torch.utils.data.Dataset):
    def __len__(self): return 1 << 20
    def __getitem__(self, i):
        end = time.thread_time() + 0.005
        while time.thread_time() < end: pass
        return torch.ones(512)
batches = iter(torch.utils.data.DataLoader(Images(), batch_size=8, num_workers=words.workers))
"""
    script = TRAIN.replace(
        "words = words.parse_args()", "words.add_argument('--workers', type=int)\nwords = words.parse_args()"
    )
    script = script.replace("class Block", loader + "class Block").replace(
        "torch.ones(words.batch_size, 512)", "next(batches)"
    )
    found = {
        workers: json.loads(predicted(tmp_path, script, "--json", "--", "--workers", str(workers)).stdout)["one"]
        for workers in (0, 2)
    }
    for workers, one in found.items():
        loading = one["loading"]
        assert loading["workers"] == workers
        assert loading["time"] >= 8 * 5
    assert found[0]["loading"]["paced"] == found[0]["step"]["time"] + found[0]["loading"]["time"]
    assert found[2]["loading"]["paced"] == found[2]["loading"]["time"] / 2 > found[2]["step"]["time"]
    words = predicted(tmp_path, script, "--", "--workers", "2").stdout
    assert "in 2 workers: it bounds the step" in words


@pytest.mark.predictions
def test_a_script_that_needs_its_ranks_is_predicted_on_them(tmp_path: Path) -> None:
    script = "import os\nassert os.environ.get('WORLD_SIZE') == '2', 'two are needed'\n" + TRAIN
    done = predicted(tmp_path, script, "--nproc", "2", "--html", "report.html")
    assert done.returncode == 0, done.stderr
    assert "two are needed" in done.stdout and "2 cards   fits" in done.stdout
    assert "the ranks exchange nothing" in done.stdout
    # The page is of what fits.
    assert "aclnnAddmm" in (tmp_path / "report.html").read_text()
    # A script that fails on both is none, and says so once.
    done = predicted(tmp_path, script.replace("'2'", "'3'"), "--nproc", "2")
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.count("two are needed") == 1


@pytest.mark.predictions
def test_nothing_of_a_launcher_is_left_where_time_is_up(tmp_path: Path) -> None:
    (tmp_path / "mark").write_text("")
    script = "import sys, time\nheld = open('mark')\nimport torch\nwhile True: time.sleep(0.1)\n"
    done = predicted(tmp_path, script, "--limit", "25", "--", "--nothing")
    assert done.returncode == 1 and "did not come to 3 steps within 25 s" in done.stderr
    path = tmp_path / "train.py"
    command = [sys.executable, "-m", "torchport", "predict", "--limit", "25", "--", "torchrun", "--nproc-per-node"]
    done = subprocess.run([*command, "2", str(path)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and "did not come to 3 steps within 25 s" in done.stderr

    def holders() -> list[Path]:
        return [link for link in Path("/proc").glob("[0-9]*/fd/*") if _target(link) == str(tmp_path / "mark")]

    until(lambda: holders() == [])
    with open(tmp_path / "mark"):  # the search finds one that is
        assert [link for link in Path("/proc/self/fd").iterdir() if _target(link) == str(tmp_path / "mark")]


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:  # it has ended
        return ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--html", "nowhere/report.html"], "nowhere"),
        (["--html", "."], "directory"),
        (["--host-memory", "tea"], "tea is no amount of memory"),
        (["--steps", "0"], "0 is no number"),
        (["--nproc", "two"], "two is no number"),
    ],
)
def test_words_that_are_none_are_refused_before_anything_runs(tmp_path: Path, words: list[str], said: str) -> None:
    done = predicted(tmp_path, "open('ran', 'w')", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr and "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.parametrize(
    ("script", "words", "status", "said"),
    [
        (TRAIN, ["--soc", "Ascend2000"], 2, "VNPU_SOC=Ascend2000 is not a chip profile"),
        pytest.param(
            "import torch; print(torch.ones(3).cuda().sum())",
            [],
            2,
            "without a step of an optimizer",
            marks=pytest.mark.predictions,
        ),
        ("print('hello')", [], 2, "without a step of an optimizer"),
        (AT_HOME, [], 2, "made 3 steps on the CPU and none on the NPU"),
        (SATISFIED, [], 2, "none was reached. It read a value of the device 1x at train.py:25 (item)"),
        pytest.param(
            SATISFIED.replace("break", "raise SystemExit(3)"),
            [],
            1,
            "with status 3 and without a step",
            marks=pytest.mark.predictions,
        ),
        # What the virtual NPU says of it, not the first line of the error alone.
        pytest.param(
            TRAIN.replace("words.batch_size, 512", "words.batch_size, 511"),
            [],
            1,
            "train.py:12: RuntimeError",
            marks=pytest.mark.predictions,
        ),
        pytest.param(
            TRAIN.replace("words.batch_size, 512", "words.batch_size, 511"),
            [],
            1,
            "[virtual NPU, aclnnAddmm",
            marks=pytest.mark.predictions,
        ),
        ("raise SystemExit(7)", [], 1, "ended with status 7 before it came to the NPU"),
        pytest.param(
            TRAIN.replace("loss.backward()", "loss.backward(); 1 / loss.item()"),
            [],
            1,
            "ZeroDivisionError",
            marks=pytest.mark.predictions,
        ),
        (ENDLESS, ["--limit", "15"], 1, "did not come to 3 steps within 15 s"),
        # By then it has read, on a busy machine too.
        pytest.param(
            ENDLESS,
            ["--limit", "200"],
            1,
            "at train.py:23 (item); in a dry run these are zero",
            marks=pytest.mark.predictions,
        ),
    ],
)
def test_what_cannot_be_predicted(tmp_path: Path, script: str, words: list[str], status: int, said: str) -> None:
    done = predicted(tmp_path, script, "--html", "report.html", *words)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr and "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
