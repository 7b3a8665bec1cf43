"""Two recordings with other numbers of processes, a second run of the same, and layers over a whole run."""

from __future__ import annotations

import json

import numpy
import port_results
import pytest
from test_pairs import Recorded

from torchport.compare import culprit as culprits
from torchport.compare import layers, repeated
from torchport.compare.batches import compare_global_batches
from torchport.compare.culprit import find_culprit
from torchport.compare.quantities import compare_quantities
from torchport.compare.replay import Replay, Row
from torchport.compare.tolerance import TOLERANCES
from torchport.errors import TorchportError
from torchport.findings import Result
from torchport.record import recording
from torchport.record.operators.reading import Operators
from torchport.record.recording import Recording
from torchport.report.html.culprit import render_culprit_section as section
from torchport.report.html.layers import render_layers_section as layers_section
from torchport.results.codec import to_json

BATCH = numpy.arange(12, dtype=numpy.float32).reshape(4, 3)


def ranks(folder, *batches):
    """A recording with a process for each batch, which a relu reads."""
    folder.mkdir()
    for rank, batch in enumerate(batches):
        made = Recorded().tensor("x", batch).tensor("y", numpy.maximum(batch, 0))
        place = folder / f"alone{rank}"
        made.call("relu", "x", "y").write(place)
        (folder / "operators" / f"rank{rank}").mkdir(parents=True)
        (place / "operators/rank0/000000.h5").rename(folder / f"operators/rank{rank}/000000.h5")
        journal = folder / "processes" / str(rank + 1)
        journal.mkdir(parents=True)
        file = f"operators/rank{rank}/000000.h5"
        events = (
            {"kind": "process", "pid": rank + 1, "name": "MainProcess", "rank": rank, "world": len(batches)},
            {"kind": "operators", "step": 0, "file": file, "calls": 1, "bytes": 1, "lost": 0},
        )
        (journal / recording.JOURNAL).write_text("".join(json.dumps(event) + "\n" for event in events))
    Result(recording.COMMAND, data={"recording": recording.VERSION}).write(folder / recording.HEAD)
    return Operators.read(folder)


@pytest.mark.processes
def test_the_global_batch_is_rebuilt_from_its_samples(tmp_path):
    one = ranks(tmp_path / "one", BATCH)
    two = ranks(tmp_path / "two", BATCH[[3, 0]], BATCH[[2, 1]])
    assert compare_global_batches(one, two) == []
    found = find_culprit(one.path, two.path)
    assert found is not None
    assert (list(found.causes), found.paired) == ([], None)


@pytest.mark.processes
def test_other_samples_are_other_data(tmp_path):
    one = ranks(tmp_path / "one", BATCH)
    two = ranks(tmp_path / "two", BATCH[[0, 1]], BATCH[[1, 3]])
    (cause,) = compare_global_batches(one, two)
    assert cause.kind == "data"
    assert "1 of the 4 samples" in cause.text and "1 and 2 processes" in cause.text
    assert find_culprit(one.path, two.path).to_json()["class"] == "data"


def test_batches_that_cannot_be_put_together_are_said(tmp_path, monkeypatch):
    one = ranks(tmp_path / "one", BATCH)
    two = ranks(tmp_path / "two", BATCH, BATCH)
    with pytest.raises(TorchportError, match=r"has 4 samples, that of .* 8: 1 and 2 processes"):
        compare_global_batches(one, two)
    monkeypatch.setattr("torchport.record.operators.reading.Tensor.has_content", False)
    with pytest.raises(TorchportError, match="does not have what the model was given") as raised:
        compare_global_batches(one, two)
    assert "--level tensor" in raised.value.hint


def again(folder, y, x=BATCH, operator="relu"):
    return Recorded().tensor("x", x).tensor("y", y).call(operator, "x", "y").write(folder)


def test_an_operator_that_does_not_repeat_itself_is_named(tmp_path):
    one, other = again(tmp_path / "a", BATCH), again(tmp_path / "b", BATCH * 1.25)
    (found,) = repeated.find_unsteady_calls(one, other)
    assert (found.operator, found.module, found.step) == ("aten::relu", "net", 0)
    assert found.by == pytest.approx(0.25)


def test_what_is_repeated_or_drawn_is_not(tmp_path):
    one = again(tmp_path / "a", BATCH)
    assert repeated.find_unsteady_calls(one, again(tmp_path / "b", BATCH)) == []
    drawn = [again(tmp_path / name, BATCH * size, operator="bernoulli_") for name, size in (("c", 1), ("d", 2))]
    assert repeated.find_unsteady_calls(*drawn) == []
    with pytest.raises(TorchportError, match="was given what it was given"):
        repeated.find_unsteady_calls(one, again(tmp_path / "e", BATCH, BATCH * 2))


def test_a_wrong_call_within_its_noise_is_nondeterminism(tmp_path, monkeypatch):
    one = again(tmp_path / "a", BATCH)
    row = Row(0, 0, "judged", "aten::relu", module="net", score=100.0, error=0.01, wrong=True)
    for by, kind in ((0.005, "nondeterminism"), (1e-5, "wrong result")):
        noisy = repeated.Unsteady(0, 0, "aten::relu", "net", "", by)
        found = culprits.Culprit([], Replay([row], {0: [0]}), (1, 1), unsteady=[noisy], port=one.path)
        assert found.to_json()["class"] == kind
        assert [finding.code for finding in found.findings[:2]] == ["TP357", "TP362"]
    assert f"torchport case {one.path} --step 0 --op aten::relu:0 -o case" in found.findings[0].hint


def test_an_overflow_that_the_reference_does_not_have_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("torchport.compare.culprit.has_tensors", lambda recorded: False)
    good = again(tmp_path / "a", BATCH, operator="exp")
    bad = again(tmp_path / "b", numpy.where(BATCH > 10, numpy.inf, BATCH), operator="exp")
    found = find_culprit(good.path, bad.path)
    assert found.to_json()["class"] == "overflow or saturation"
    assert found.findings[0].code == "TP361"
    assert "aten::exp (forward) in net makes 1 elements" in found.findings[0].message
    assert find_culprit(bad.path, bad.path).overflows == []


def trained(folder, factor=1.0, steps=6):
    """A run with two layers whose gradients and updates were recorded; from the third step on those of the second are
    `factor` times as large."""
    folder.mkdir()
    Result(recording.COMMAND, data={"recording": recording.VERSION}).write(folder / recording.HEAD)
    journal = recording.Journal(folder)
    journal.write_event("process", pid=1, name="MainProcess", rank=None, world=None)
    names = ["first.weight", "first.bias", "second.weight"]
    journal.write_event("parameters", optimizer=0, step=0, names=names, sizes=[4, 2, 4])
    for step in range(steps):
        gradient = [3.0, 4.0, 2.0 if step < 2 else factor if factor == "nan" else 2.0 * factor]
        journal.write_event("norms", optimizer=0, step=step, gradient=gradient, norm=[1.0] * 3, change=[0.1] * 3)
        journal.write_event("step", device="cpu", gradient="cpu", launches=None, seconds=None)
    return Recording.from_directory(folder)


def rows_of(tmp_path, factor):
    both = compare_quantities(trained(tmp_path / "a"), trained(tmp_path / "b", factor), None, (), TOLERANCES["float32"])
    return layers.list_layer_norms(both)


def test_layers_that_drift_come_first(tmp_path):
    rows = rows_of(tmp_path, 1.25)
    assert [(row.layer, row.kind) for row in rows[:2]] == [("second", "gradient"), ("second", "change")]
    assert (rows[0].drift, rows[0].step) == (pytest.approx(0.2), 2)
    first = next(row for row in rows if (row.layer, row.kind) == ("first", "gradient"))
    assert (first.drift, first.parameters) == (0.0, 2)
    assert first.reference == (5.0,) * 6
    text = layers_section(port_results.compare(layers=to_json(rows)))
    assert text.index("second") < text.index("first")
    assert text.count("<svg") == 4


def test_layers_that_do_not_drift_have_no_drift(tmp_path):
    assert {row.drift for row in rows_of(tmp_path, 1.0)} == {0.0}
    assert layers_section(port_results.compare(layers=[])) == ""


def test_a_layer_that_is_no_number_drifts_as_far_as_can_be(tmp_path):
    row = rows_of(tmp_path, "nan")[0]
    assert (row.layer, row.drift, row.port[2]) == ("second", 1e9, None)


def test_the_table_of_all_calls_is_text_for_the_page_alone(tmp_path):
    rows = [
        Row(0, number, "judged", f"aten::op{number % 7}", module="<b>net</b>", score=1.0 + number)
        for number in range(20_000)
    ]
    data = culprits.Culprit([], Replay(rows, {0: [0]}), (1, 1)).to_json()
    text = section(port_results.compare(culprit=data))
    stored = text.partition("<pre id=calls hidden>")[2].partition("</pre>")[0]
    assert "<b>" not in text
    table = json.loads(stored.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert len(table["rows"]) == 20_000
    assert table["strings"][table["rows"][8][6]] == "aten::op1"
    assert text.count("<tr") < 100
