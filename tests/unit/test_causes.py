"""What differs around operators, where the two recordings have other forms of one thing."""

from __future__ import annotations

import json

import numpy
import pytest
from test_pairs import Recorded, X, Y

from torchport.compare.classes import find_causes
from torchport.compare.culprit import find_culprit

OPTIMIZER = 2


def layers(folder, factor=1.0):
    """Of three layers the second gives what `factor` makes of it."""
    made = Recorded().tensor("x", X).tensor("a", Y).tensor("b", Y * factor).tensor("c", Y * factor)
    for given, gave, module in (("x", "a", "first"), ("a", "b", "second"), ("b", "c", "third")):
        made.call("relu", given, gave, module=module)
    return made.write(folder).path


@pytest.mark.parametrize(
    ("factor", "filters"),
    [(1.0, "--filter module=NAME"), (1.01, "--filter step=0 --filter module=second --filter module=third")],
)
def test_statistics_name_whose_tensors_to_record(tmp_path, monkeypatch, factor, filters):
    monkeypatch.setattr("torchport.compare.culprit.has_tensors", lambda recorded: False)
    found = find_culprit(layers(tmp_path / "a"), layers(tmp_path / "b", factor))
    assert found is not None
    (finding,) = [one for one in found.findings if one.code == "TP360"]
    assert finding.hint.endswith(f"torchport run --record DIR --level tensor {filters} SCRIPT")


def each(folder, decay=0.99999, rate=0.01):
    """An optimizer that calls operators for each of two parameters."""
    made = Recorded().tensor("x", X).tensor("p", X).tensor("q", Y)
    made.call("relu", "x", "x")
    for name in "pq":
        made.call("mul_", name, name, "", OPTIMIZER, json.dumps([{"t": 0}, decay]))
        made.call("addcdiv_", name, name, "", OPTIMIZER, json.dumps([{"t": 0}, {"t": 0}, {"t": 0}, -rate]))
    return made.write(folder)


def at_once(folder, decay=0.99999, rate=0.01):
    """One that calls them for a list."""
    made = Recorded().tensor("x", X).tensor("p", X).tensor("q", Y)
    both = [{"t": 0}, {"t": 1}]
    made.call("relu", "x", "x")
    made.call("_foreach_mul_", "p q", "", "", OPTIMIZER, json.dumps([both, decay]))
    # A number of one form alone, as the count of steps, is none of both.
    made.call("_foreach_add_", "p q", "", "", OPTIMIZER, json.dumps([both, 1.0]))
    made.call("_foreach_addcdiv_", "p q", "", "", OPTIMIZER, json.dumps([both, both, both, [-rate, -rate]]))
    return made.write(folder)


def test_an_optimizer_in_another_form_is_none(tmp_path):
    assert find_causes(each(tmp_path / "a"), at_once(tmp_path / "b")) == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rate": 0.02}, "addcdiv in the optimizer pass computes with -0.02, with -0.01 in the reference"),
        ({"decay": 0.9999}, "mul in the optimizer pass computes with 0.9999, with 0.99999 in the reference"),
    ],
)
def test_its_numbers_are_compared_whatever_its_form(tmp_path, options, text):
    (found,) = find_causes(each(tmp_path / "a"), at_once(tmp_path / "b", **options))
    assert (found.kind, found.text, found.step) == ("hyper-parameter", text, 0)


def test_factors_that_one_form_leaves_out_are_no_hyper_parameters(tmp_path):
    sides = []
    for name, numbers in (("add_", [-1.0]), ("_foreach_add_", [-0.0, 1.0, 1e-8])):
        made = Recorded().tensor("x", X).call("relu", "x", "x")
        for number in numbers:
            made.call(name, "x", "x", "", OPTIMIZER, json.dumps([{"t": 0}, number]))
        sides.append(made.write(tmp_path / name))
    assert find_causes(*sides) == []


@pytest.mark.parametrize("name", ["empty_strided", "empty_permuted"])
def test_shapes_of_new_memory_are_no_hyper_parameters(tmp_path, name):
    """FSDP's shards are allocated in the order of each device."""
    sides = []
    for shapes in ([32, 12], [12, 32]):
        made = Recorded().tensor("x", X).tensor("a", X).call("relu", "x", "x")
        for size in shapes:
            made.call(name, "", "a", "", OPTIMIZER, json.dumps([[size]]))
        sides.append(made.write(tmp_path / str(shapes[0])))
    assert find_causes(*sides) == []


KEPT = numpy.ones((4, 5))


def on_npu(folder, batch=X, memory=KEPT, operator="matmul"):
    """A first step of which most is done on the host: the data are made there."""
    made = Recorded().tensor("d", batch).tensor("x", batch, device="npu:0").tensor("m", memory, device="npu:0")
    made.tensor("y", Y, device="npu:0")
    for _ in range(5):
        made.call("mul", "d", "d")
    made.call("_to_copy", "d", "x").call(operator, "x", "y").call("view", "m", "m")
    return made.write(folder)


def on_cpu(folder, operator="mm"):
    made = Recorded().tensor("d", X).tensor("y", Y)
    for _ in range(5):
        made.call("mul", "d", "d")
    return made.call(operator, "d", "y").write(folder)


def test_the_operators_of_a_step_that_made_its_data_on_the_host(tmp_path):
    assert find_causes(on_cpu(tmp_path / "a"), on_npu(tmp_path / "b")) == []
    (found,) = find_causes(on_cpu(tmp_path / "c", "gelu"), on_npu(tmp_path / "d"))
    assert (found.kind, found.text.partition(" in ")[0]) == ("missing operator", "only the reference calls aten::gelu")


def test_memory_that_an_accelerator_kept_is_no_data(tmp_path):
    reference = Recorded().tensor("d", X).tensor("m", KEPT).tensor("y", Y)
    reference.call("mm", "d", "y").call("view", "m", "m")
    reference = reference.write(tmp_path / "a")
    assert find_causes(reference, on_npu(tmp_path / "b", memory=KEPT * 3)) == []
    (found,) = find_causes(reference, on_npu(tmp_path / "c", batch=X * 3))
    assert found.kind == "data"
