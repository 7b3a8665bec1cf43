"""What two recordings of operators say: the operator, or what was not the same before any operator."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from test_operator_files import write

from torchport.cli import main
from torchport.compare import tensors
from torchport.compare.culprit import find_culprit
from torchport.errors import TorchportError

pytestmark = pytest.mark.processes

RUN = Path(__file__).parents[1] / "accuracy" / "recording_run.py"
# Of tests/accuracy/around.py, which `make accuracy` tries all.
AROUND = {
    "a batch in another order": "data",
    "twice the learning rate": "hyper-parameter",
    "a silu that is left out": "missing operator",
    "gradients that are not averaged": "missing collective",
}
INSIDE = "mean over one too few"
HEALTHY = "image"


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recordings")
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(RUN), str(folder), "cpu", HEALTHY, INSIDE, *AROUND]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    return folder


def statistics_only(monkeypatch):
    """As if tensors had not been kept: nothing is computed again."""
    monkeypatch.setattr("torchport.compare.culprit.has_tensors", lambda recorded: False)


@pytest.mark.parametrize("name", AROUND)
def test_what_is_around_operators_is_named_by_its_class(recordings, monkeypatch, name):
    statistics_only(monkeypatch)
    found = find_culprit(recordings / HEALTHY, recordings / name.replace(" ", "_"))
    assert found.causes[0].kind == AROUND[name]
    assert found.to_json()["class"] == AROUND[name]
    first, *_, last = found.findings
    assert (first.code, first.severity) == ("TP358", "error")
    assert last.code == "TP360" and "--level tensor" in last.hint


def test_nothing_is_named_where_nothing_differs(recordings):
    found = find_culprit(recordings / HEALTHY, recordings / HEALTHY)
    assert found.causes == []
    assert found.findings == []
    data = found.to_json()
    assert (data["class"], data["first"], data["wrong"]) == ("", None, 0)
    assert data["share"] >= 0.95


def test_the_report_opens_with_the_operator(recordings, tmp_path, capsys):
    page, table, sarif = (tmp_path / name for name in ("report.html", "rows.csv", "found.sarif"))
    sides = [str(recordings / name.replace(" ", "_")) for name in (HEALTHY, INSIDE)]
    main(["compare", *sides, "--json", "-o", str(page), "--csv", str(table), "--sarif", str(sarif)])
    result = json.loads(capsys.readouterr().out)
    assert result["findings"][0]["code"] == "TP357"
    assert result["findings"][0]["message"].startswith("first wrong: the model (aten::mean), step 1: ")
    assert "introduced there, unless its inputs were written over meanwhile" in result["findings"][0]["message"]
    assert result["data"]["culprit"]["first"]["operator"] == "aten::mean"
    assert result["data"]["culprit"]["class"] == "wrong result"
    with table.open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["operator"] for row in rows if row["wrong"] == "True"] == ["aten::mean"]
    assert "aten::mean" in page.read_text()
    assert json.loads(sarif.read_text())["runs"][0]["results"][0]["ruleId"] == "TP357"


def test_what_cannot_be_compared_is_said(recordings, tmp_path, monkeypatch):
    statistics_only(monkeypatch)
    for name in ("other", "empty"):
        (tmp_path / name).mkdir()
    other, empty = write(tmp_path / "other"), write(tmp_path / "empty", 0)
    with pytest.raises(TorchportError, match="hardly a module in common"):
        find_culprit(recordings / HEALTHY, other)
    with pytest.raises(TorchportError, match="has no step of operators"):
        find_culprit(recordings / HEALTHY, empty)
    assert find_culprit(empty, empty) is None


def test_metrics_of_a_tensor():
    one = numpy.array([1.0, 2.0, -4.0, 0.0], numpy.float32)
    other = one.copy()
    assert tensors.compute_metrics(one, other, "float32") == tensors.Metrics(0, 0, 0, 1, 0, 1, 1, 0, 0)
    other[1] += 2 * 2.0**-22  # two units in the last place of 2
    other[2] = -4.1
    found = tensors.compute_metrics(one, other, "float32")
    assert found.largest == pytest.approx(0.1, rel=1e-5)
    assert found.largest_relative == pytest.approx(0.025, rel=1e-5)
    assert found.mean_relative == pytest.approx(0.025 / 4, rel=1e-4)
    assert found.euclidean == pytest.approx(0.1 / 21**0.5, rel=1e-5)
    assert (found.within_1000, found.within_200) == (0.75, 0.75)
    assert 0.999 < found.cosine < 1
    other[0] = numpy.nan
    assert tensors.compute_metrics(one, other, "float32").not_finite == 1
    assert tensors.compute_metrics(one[:2], one[:2] + numpy.float32([0, 2 * 2.0**-22]), "float32").ulp == 2
