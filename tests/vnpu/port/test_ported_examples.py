"""The examples on the device: `torchport port` on the single-process ones, the converted script on two devices."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from torchport import vnpu
from torchport.convert import convert_tree

EXAMPLES = Path(__file__).parents[3] / "examples"
# Arguments with which each trains for seconds, how many optimizer steps that is, and at how many places it has a loss.
SINGLE = {
    "gpt/train.py": (["--steps", "12", "-b", "4", "--block", "32", "--width", "64"], 12, 1),
    "gan/train.py": (["--epochs", "1", "--ngf", "8", "--ndf", "8"], 56, 3),
    "imagenet/main.py": (["--epochs", "1", "--limit", "256"], 4, 1),
    "lstm/train.py": (["--steps", "8"], 8, 1),
    "vae/train.py": (["--epochs", "1"], 15, 1),
    "reinforce/train.py": (["--episodes", "8"], 8, 1),
}
IN_MAKE_TEST = {"gpt/train.py"}  # the others in `make ports`
# These have tests of their own.
ELSEWHERE = {"digits/train.py": "test_ported_digits.py", "apex/train.py": "../test_example_apex.py"}


def test_every_example_is_tested() -> None:
    here = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.glob("*/*.py")}
    assert here == {*SINGLE, *ELSEWHERE}
    assert all((Path(__file__).parent / name).is_file() for name in ELSEWHERE.values())


def port(name: str, out: Path, arguments: list[str]) -> tuple[int, dict[str, object]]:
    command = [sys.executable, "-m", "torchport", "port", str(EXAMPLES / name), "--out", str(out), "--json"]
    run = subprocess.run([*command, "--", *arguments], cwd=out.parent, capture_output=True, text=True)
    assert run.stdout, run.stderr
    return run.returncode, json.loads(run.stdout)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.ports] * (name not in IN_MAKE_TEST)) for name in SINGLE]
)
def test_trains_like_the_original(name: str, tmp_path: Path) -> None:
    arguments, steps, places = SINGLE[name]
    code, result = port(name, tmp_path / "out", arguments)
    assert code == 0, [finding["message"] for finding in result["findings"]]
    comparison = result["data"]["comparison"]
    assert comparison["steps"] == {"kind": "optimizer step", "reference": steps, "port": steps}
    assert (comparison["method"], comparison["chance"]) == ("step by step", [])
    assert comparison["worst"]["first"] <= 1e-4
    assert comparison["evidence"][0]["steps_with"] == steps
    assert len(comparison["curves"]) == places
    for curve in comparison["curves"]:  # it does train
        assert len({round(loss, 6) for loss in curve["port"]}) > len(curve["port"]) // 2
    assert (tmp_path / "out" / "report.html").read_text().startswith("<!doctype html>")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_trains_on_two_devices(tmp_path: Path) -> None:
    """The ImageNet example as it is started for several GPUs: one process per device, gradients averaged by HCCL."""
    convert_tree(EXAMPLES / "imagenet", tmp_path / "npu")
    environment = {**os.environ, **vnpu.environment(), "ASCEND_RT_VISIBLE_DEVICES": "0,1", "OMP_NUM_THREADS": "1"}
    arguments = [
        "--epochs",
        "1",
        "--limit",
        "128",
        "--multiprocessing-distributed",
        "--dist-url",
        f"tcp://127.0.0.1:{free_port()}",
    ]
    done = subprocess.run(
        [sys.executable, "main.py", *arguments, "--world-size", "1", "--rank", "0"],
        cwd=tmp_path / "npu",
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Use GPU: 0 for training" in done.stdout and "Use GPU: 1 for training" in done.stdout
    assert "Acc@1" in done.stdout
