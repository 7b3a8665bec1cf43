"""Scripts for one device in the shapes that people write them in, converted with --distributed: on two ranks each gives
what one process gives that steps on the batches of both.
"""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
from job import torchrun

from torchport.convert import Extras, convert_tree
from torchport.findings import Result, Severity
from torchport.rules import Style

SHAPES = Path(__file__).with_name("shapes")
# The name of the model, how many samples each rank trains on in an epoch, and how many epochs there are; 0: each rank
# trains on all, since the order is the script's own, and a warning says so.
NAMES = {
    "accumulated": ("model", 16, 2),
    "endless": ("model", 0, 1),
    "files": ("net", 16, 2),
    "own_order": ("model", 0, 1),
    "sampled": ("model", 0, 2),
    "trainer": ("self.model", 16, 2),
}


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[Path, Result]]:
    """Every script in a folder of its own, after its run in two ranks, with what the conversion said."""
    folder = tmp_path_factory.mktemp("shapes")
    found = {}
    for name, (model, _, _) in NAMES.items():
        result = convert_tree(SHAPES / name, folder / name, Style.NPU, Extras("train.py", model))
        found[name] = folder / name, result
    output = torchrun(SHAPES.with_name("shapes_worker.py"), 2, str(folder), *free_ports(len(NAMES)))
    for name in NAMES:
        assert (folder / name / "status-1").exists(), output
    return found


def free_ports(count: int) -> list[str]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [str(one.getsockname()[1]) for one in held]
    for one in held:
        one.close()
    return ports


@pytest.fixture(params=NAMES)
def shape(request: pytest.FixtureRequest, converted: Mapping[str, tuple[Path, Result]]) -> str:
    return str(request.param)


def seen(folder: Path) -> list[dict[str, list[list[list[int]]]]]:
    """What each rank left: the samples of each batch of each step, its weights, how many it has validated on."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("seen-*.json"))]


def trained(ranks: list[list[list[list[int]]]]) -> list[float]:
    """The weights after steps on the mean gradient of all ranks' batches, in float64."""
    weight = [0.0, 0.0, 0.0]
    for step in zip(*ranks, strict=True):
        batches = [batch for rank in step for batch in rank]
        total = [0.0, 0.0, 0.0]
        for batch in batches:
            for i in batch:
                x = [math.sin(i), math.cos(i), 1.0]
                error = sum((w - true) * one for w, true, one in zip(weight, (1.0, -2.0, 0.5), x, strict=True))
                total = [sum_ + 2 * error * one / len(batch) for sum_, one in zip(total, x, strict=True)]
        weight = [w - 0.1 * one / len(batches) for w, one in zip(weight, total, strict=True)]
    return weight


def test_the_oracle_knows_who_averages() -> None:
    one, other = [[[0, 1]], [[2, 3]]], [[[4, 5]], [[6, 7]]]
    assert trained([one, other]) == pytest.approx(trained([other, one]))
    assert trained([one, one]) == pytest.approx(trained([one]))
    assert trained([one, other]) != pytest.approx(trained([one]), abs=1e-3)
    assert trained([[[[0, 1], [2, 3]]]]) == pytest.approx(trained([[[[0, 1, 2, 3]]]]))


def test_it_trains_as_one_process_on_the_batches_of_both(
    shape: str, converted: Mapping[str, tuple[Path, Result]]
) -> None:
    folder, _ = converted[shape]
    said = [(folder / f"said-{rank}.txt").read_text() for rank in (0, 1)]
    assert [(folder / f"status-{rank}").read_text() for rank in (0, 1)] == ["0", "0"], "".join(said)
    ranks = seen(folder)
    assert len(ranks) == 2
    assert ranks[0]["weight"] == ranks[1]["weight"]
    expected = trained([rank["steps"] for rank in ranks])
    assert ranks[0]["weight"] == pytest.approx(expected, abs=5e-3 if shape == "accumulated" else 1e-5)
    assert [rank["validated"] for rank in ranks] == [10, 10]


def test_the_data_is_shared_out_or_a_warning_says_that_it_is_not(
    shape: str, converted: Mapping[str, tuple[Path, Result]]
) -> None:
    folder, result = converted[shape]
    _, share, epochs = NAMES[shape]
    loaders = [one for one in result.findings if one.code == "TP211"]
    assert bool(share) == any(one.fix for one in loaders)
    assert share or any(one.severity is Severity.WARNING for one in loaders)
    if share:
        orders = [[i for step in rank["steps"] for batch in step for i in batch] for rank in seen(folder)]
        each = [[order[e * share : (e + 1) * share] for e in range(epochs)] for order in orders]
        for one, other in zip(*each, strict=True):
            assert sorted(one + other) == list(range(2 * share))
        assert each[0][0] != each[0][1]  # the sampler knows the epoch


def test_one_rank_speaks_and_saves_the_model_itself(shape: str, converted: Mapping[str, tuple[Path, Result]]) -> None:
    folder, _ = converted[shape]
    said = [
        [
            line
            for line in (folder / f"said-{rank}.txt").read_text().splitlines()
            if line.split()[:1] and line.split()[0] in ("epoch", "step", "12")
        ]
        for rank in (0, 1)
    ]
    assert said[0] and not said[1]
    (model,) = folder.glob("model.pt")
    names = model.read_bytes()
    assert b"weight" in names and b"module.fc.weight" not in names and b"DistributedDataParallel" not in names


def test_gradients_are_averaged_where_the_optimizer_steps(converted: Mapping[str, tuple[Path, Result]]) -> None:
    folder, _ = converted["accumulated"]
    assert "model.require_backward_grad_sync = (step + 1) % ACCUMULATE == 0\n" in (folder / "train.py").read_text()
