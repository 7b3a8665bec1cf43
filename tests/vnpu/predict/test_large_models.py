"""Models of the chip's size: the memory that a prediction takes of this machine, and what is said of models that are too large."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.predictions, pytest.mark.timeout(900)]
SCRIPTS = Path(__file__).with_name("scripts")
GIB = 1 << 30
# Of GPT's form: four matrices of attention, eight of the perceptron, and two normalisations a block.
BLOCK, EMBEDDINGS = 12 * 4096**2 + 4 * 4096, (2 * 32000 + 2048) * 4096 + 2 * 4096
SEVEN = 32 * BLOCK + EMBEDDINGS


def predict(script: Path, *words: str, status: int = 0) -> dict[str, Any]:
    """What `torchport predict` says, with `wall` and `processor`, the seconds that it took, children too."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, "-m", "torchport", "predict", str(script), "--json", "--soc", "Ascend910B1", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found: dict[str, Any] = json.loads(done.stdout)
    found["wall"] = time.monotonic() - began
    found["processor"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return found


def said(found: dict[str, Any]) -> str:
    ranks = found["many"] or found["one"]
    step = f", step {ranks['wall_step']:.2f} s wall" if ranks["wall_step"] else ""
    return (
        f"{found['wall']:.1f} s wall, {found['processor']:.1f} s of processor time, "
        f"{ranks['resident'] / GIB:.2f} GiB held{step}"
    )


@pytest.mark.parametrize("weights", ["device", "meta", "cpu"])
def test_a_decoder_of_seven_billion_parameters(weights: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = predict(SCRIPTS / "decoder.py", "--", "--weights", weights)
    with capsys.disabled():
        print(f"\n7B, weights on {weights}: {said(found)}")
    assert found["fits"]
    assert found["one"]["peak"]["owners"]["weights"] == pytest.approx(2 * SEVEN, rel=0.001)
    assert found["one"]["resident"] < GIB
    if weights == "cpu":  # float32, and never read there
        assert found["unfilled"] == pytest.approx(4 * SEVEN, rel=0.001)
        assert found["unfilled_read"] == 0
    else:
        assert found["unfilled"] == 0


def test_adamw_with_foreach_is_out_of_memory_and_without_it_fits() -> None:
    found = predict(SCRIPTS / "decoder.py", "--", "--foreach", status=1)
    assert not found["fits"] and "NPU out of memory. Tried to allocate" in found["failure"]
    tried = {row["change"]: row for row in found["advice"]}
    without = tried["the optimizer without foreach (foreach=False)"]
    # As the script does it itself, to the byte.
    assert without["fits"]
    assert without["peak"] == predict(SCRIPTS / "decoder.py", "--")["one"]["peak"]["allocated"]
    # Two moments of seven eighths of the ranks go: 2 x 2 bytes a parameter.
    stage = next(row for change, row in tried.items() if change.startswith("ZeRO stage 1 over 8 ranks"))
    assert without["peak"] - stage["peak"] == pytest.approx(4 * SEVEN * 7 / 8, rel=0.001)


def test_weights_that_the_script_reads_on_the_cpu_take_memory_and_are_named(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    text = (SCRIPTS / "decoder.py").read_text()
    script.write_text(
        text.replace(
            "    model = Decoder().to(",
            "    model = Decoder()\n    print(sum(float(p.sum()) for p in model.parameters()))\n    model = model.to(",
        )
    )
    found = predict(script, "--", "--weights", "cpu", "--layers", "2")
    assert found["unfilled_read"] == found["unfilled"] > GIB
    # Values made by the script's own arithmetic are there, and so is what they take.
    script.write_text(
        text.replace(
            "    model = Decoder().to(",
            "    model = Decoder()\n    for p in model.parameters():\n        p.data.add_(1)\n    model = model.to(",
        )
    )
    found = predict(script, "--", "--weights", "cpu", "--layers", "2")
    assert found["one"]["resident"] > found["unfilled"] > GIB


def test_what_does_not_fit_this_machine_is_ended_and_said(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nheld = [torch.ones(1 << 28) for _ in range(16)]\nmodel = torch.nn.Linear(1, 1).cuda()\n"
    )
    command = [sys.executable, "-m", "torchport", "predict", "--host-memory", "2GiB", str(script)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "GiB of this machine's memory" in done.stderr and "its host needs more than that" in done.stderr
    assert "Traceback" not in done.stderr


def test_resnet_50_at_batch_2048_is_out_of_memory_and_a_batch_is_named_that_fits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = predict(SCRIPTS / "residual.py", "--", "--batch-size", "2048", status=1)
    with capsys.disabled():
        print(f"\nResNet-50 at 2,048, with all that was tried: {said(found)}")
    assert not found["fits"] and "out of memory" in found["failure"]
    tried = {row["change"]: row["fits"] for row in found["advice"]}
    # 90 MB an image (test_memory_by_hand): 1,024 are 85 GiB, 512 are 43.
    assert (tried["--batch-size 1024"], tried["--batch-size 512"]) == (False, True)


def test_eight_ranks_in_six_gib(capsys: pytest.CaptureFixture[str]) -> None:
    found = predict(
        SCRIPTS / "decoder.py", "--nproc", "8", "--", "--data-parallel", "--layers", "12", "--width", "2048"
    )
    with capsys.disabled():
        print(f"\n8 ranks: {said(found)}")
    assert found["many"]["ranks"] == 8 and found["many"]["resident"] < 6 * GIB
    # It is measured: eight processes with torch hold more than one.
    assert found["many"]["resident"] > 2 * found["one"]["resident"]
    assert found["many"]["samples"] == 8 * found["one"]["samples"]
    assert 4 * found["one"]["throughput"] < found["many"]["throughput"] < 8 * found["one"]["throughput"]
    assert found["many"]["step"]["units"]["collective"] > 0


def test_seventy_billion_parameters_over_eight_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--parallel", "--sgd", "--layers", "80", "--width", "8192", "--heads", "64")
    found = predict(SCRIPTS / "decoder.py", "--nproc", "8", "--", *words)
    with capsys.disabled():
        print(f"\n70B over 8 ranks: {said(found)}")
    # One card does not hold it, which is part of the answer.
    assert not found["one"]["fits"] and "out of memory" in found["one"]["failure"]
    assert found["fits"] and found["many"]["ranks"] == 8
    width, layers = 8192, 80
    split = layers * 12 * width**2 // 8
    whole = layers * 4 * width + (2 * 32000 + 2048) * width + 2 * width
    assert found["many"]["peak"]["owners"]["weights"] == pytest.approx(2 * (split + whole), rel=0.001)
    assert found["many"]["resident"] < 6 * GIB
