"""The first result of a step that is no number, what made it, and the ring that keeps the steps before it."""

from __future__ import annotations

import dataclasses
import json

import numpy
import pytest
from test_operator_files import write
from test_pairs import Recorded

from torchport.cli import main
from torchport.record import recording
from torchport.record.float_status import FloatStatus
from torchport.record.operators import overflow
from torchport.record.operators.reading import Operators
from torchport.record.operators.ring import Ring

INF, NAN = numpy.inf, numpy.nan
LARGEST = float(numpy.finfo(numpy.float32).max)


def recorded(*calls, **tensors):
    made = Recorded()
    for name, values in tensors.items():
        made.tensor(name, values)
    for call in calls:
        made.call(*call[:3], **(call[3] if len(call) > 3 else {}))
    return made


def found_in(folder, *calls, **tensors):
    return list(overflow.find_overflows(recorded(*calls, **tensors).write(folder)))


def test_the_call_that_made_it_is_named(tmp_path):
    (found,) = found_in(
        tmp_path,
        ("exp", "x", "y", {"module": "layer.0"}),
        ("sub", "y", "z"),
        ("add", "z", "w"),
        x=[1.0, 100.0],
        y=[2.7, INF],
        z=[1.0, NAN],
        w=[2.0, NAN],
    )
    assert (found.operator, found.module, found.what, found.count) == ("aten::exp", "layer.0", "infinite", 1)
    assert found.after == 2
    assert list(found.inputs) == ["float32[2] up to 100"]
    assert "layer.0" in found.sentence and not found.handled


@pytest.mark.parametrize(
    ("calls", "tensors"),
    [
        # A mask is filled with infinity, and added to scores.
        (
            [("masked_fill", "x", "y", {"arguments": '[{"t":0},{"float":"-inf"}]'}), ("add", "y", "z")],
            {"x": [1.0, 2.0], "y": [1.0, -INF], "z": [2.0, -INF]},
        ),
        ([("full", "", "y", {"arguments": f"[[2],{-LARGEST!r}]"})], {"y": [-LARGEST, -LARGEST]}),
        ([("empty", "", "y")], {"y": [NAN, 1.0]}),
        ([("relu", "x", "x")], {"x": [1.0, 2.0]}),
    ],
)
def test_what_was_asked_for_is_none(tmp_path, calls, tensors):
    assert found_in(tmp_path, *calls, **tensors) == []


def test_no_number_out_of_infinities_that_were_asked_for(tmp_path):
    (found,) = found_in(tmp_path, ("_softmax", "x", "y"), x=[-INF, -INF], y=[NAN, NAN])
    assert (found.operator, found.what, found.count) == ("aten::_softmax", "NaN", 2)


def test_what_vanishes_again_is_taken_care_of(tmp_path):
    """RAdam divides by 0 in its first steps, and takes the reciprocal."""
    calls, tensors = [("div", "x", "y"), ("reciprocal", "y", "z")], {"x": [1.0, 2.0], "y": [INF, INF], "z": [0.0, 0.0]}
    (found,) = found_in(tmp_path / "a", *calls, **tensors)
    assert found.handled == overflow.VANISHES
    for number, more in enumerate(
        [
            [("_local_scalar_dense", "y", "")],  # a loss that is printed
            [("mul", "y", "w")],  # which nobody reads
        ]
    ):
        (found,) = found_in(tmp_path / str(number), *calls, *more, **tensors, w=[INF, 1.0])
        assert not found.handled


def test_saturated(tmp_path):
    (found,) = found_in(tmp_path, ("mul", "x", "y"), x=[1.0, 1e30], y=[1.0, LARGEST])
    assert found.what == "saturated"


def scaled(folder, phase):
    recorded(("mul", "x", "y", {"phase": phase}), x=[1.0], y=[INF]).write(folder)
    recording.Journal(folder).write_event("scaler", step=0, scale=65536.0, skipped=True)
    (found,) = overflow.find_overflows(Operators.read(folder))
    return found.handled


def test_a_grad_scaler_takes_care_of_gradients_alone(tmp_path):
    assert scaled(tmp_path / "backward", 1) == "left out by the GradScaler"
    assert scaled(tmp_path / "forward", 0) == ""


def test_the_command_says_so_by_its_exit_code(tmp_path, capsys):
    recorded(("exp", "x", "y"), x=[1.0], y=[INF]).write(tmp_path / "bad")
    assert main(["record", "overflow", str(tmp_path / "bad"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["overflows"][0]["operator"] == "aten::exp"
    recorded(("exp", "x", "y"), x=[1.0], y=[2.0]).write(tmp_path / "good")
    assert main(["record", "overflow", str(tmp_path / "good")]) == 0
    assert capsys.readouterr().out == "every result is a number, or was asked not to be\n"
    recording.Journal(tmp_path / "good").write_event("overflowed", step=3)
    assert main(["record", "overflow", str(tmp_path / "good")]) == 1
    assert "step 3: the NPU's overflow flag" in capsys.readouterr().out


class Steps:
    """A ring over files of steps of which some overflow in a pass."""

    def __init__(self, folder, most, left_out=()):
        self.folder, self.removed = folder, []
        self.ring = Ring(most, left_out.__contains__, lambda path, size: self.removed.append(path.stem))

    def add(self, number, phase=0, value=2.0):
        made = recorded(("exp", "x", "y", {"phase": phase}), x=[1.0], y=[value])
        place = self.folder / str(number)
        place.mkdir()
        kept = []

        def tables():
            finished = made.tables.finish_tables()
            kept.append(finished)
            return made.source, dataclasses.make_dataclass("Made", [("finish_tables", object)])(lambda: finished)

        write(place, 1, tables)
        path = (place / "operators/rank0/000000.h5").rename(self.folder / f"{number:06d}.h5")
        return self.ring.add_step(number, path, kept[0], 7)

    def left(self):
        return sorted(path.stem for path in self.folder.glob("*.h5"))


def test_the_ring_keeps_the_steps_before_the_first_overflow(tmp_path):
    steps = Steps(tmp_path, 2, left_out=[2])
    assert not steps.add(0)
    assert not steps.add(1)
    assert not steps.add(2, phase=1, value=INF)  # a GradScaler has left it out
    assert not steps.add(3)
    assert steps.left() == ["000002", "000003"]
    assert steps.removed == ["000000", "000001"]
    assert steps.add(4, phase=1, value=INF)
    assert steps.ring.found.operator == "aten::exp"
    assert not steps.add(5)
    assert steps.left() == ["000003", "000004"]


def test_dropped_steps_are_not_missed(tmp_path):
    write(tmp_path, 3)
    recording.Journal(tmp_path).write_event("dropped", file="operators/rank0/000000.h5")
    (tmp_path / "operators/rank0/000000.h5").unlink()
    process = Operators.read(tmp_path).rank(0)
    assert process.steps == [1, 2]
    assert process.missing == ()


class Chip:
    """torch, with an NPU that has no infinity."""

    def __init__(self, flags, infinity=False):
        self.npu = self.utils = self
        self.flags, self.infinity = iter(flags), infinity

    def is_initialized(self):
        return True

    def is_support_inf_nan(self):
        return self.infinity

    def get_npu_overflow_flag(self):
        return next(self.flags)


def test_the_flag_is_told_of_when_it_goes_up():
    told = []
    part = FloatStatus(Chip([False, True, True, False, True]), lambda kind, **event: told.append((kind, event["step"])))
    for _ in range(5):
        part.step_done()
    assert told == [("overflowed", 1), ("overflowed", 4)]
    other = FloatStatus(Chip([], infinity=True), told.append)  # Ascend910B refuses the question
    other.step_done()
    assert len(told) == 2
