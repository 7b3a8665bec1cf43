"""Recorded operators computed again: the one that is wrong is named, and nothing is where nothing is wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from test_operator_files import Given, measured, write

from torchport.compare import precision, replay
from torchport.compare.culprit import Culprit, classify_error
from torchport.errors import TorchportError
from torchport.record import oracles
from torchport.record.operators.mode import UNWRITTEN
from torchport.record.operators.reading import Operators, ProcessOperators
from torchport.record.operators.tables import Row, Tables
from torchport.record.recording import Recording

pytestmark = pytest.mark.processes

RUN = Path(__file__).parents[1] / "accuracy" / "recording_run.py"
# Of tests/accuracy/inside.py, which `make accuracy` tries all: name, operator, module, phase.
FAULTS = {
    "convolution of a shifted picture": ("aten::convolution", "conv1", "forward"),
    "max pool gradient x 0.999": ("aten::max_pool2d_with_indices_backward", "pool", "backward"),
    "update x 1.01": ("aten::addcdiv_", "", "optimizer"),
}
HEALTHY = "image"


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """A folder with a recording for each of FAULTS and for HEALTHY."""
    folder = tmp_path_factory.mktemp("recordings")
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(RUN), str(folder), "cpu", HEALTHY, *FAULTS]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    return folder


@pytest.mark.parametrize("name", FAULTS)
def test_the_wrong_operator_is_the_only_one(recordings, name):
    found = replay.replay_recording(recordings / name.replace(" ", "_"), steps=[1])
    operator, module, phase = FAULTS[name]
    assert [(row.operator, row.phase, row.step) for row in found.wrong] == [(operator, phase, 1)]
    assert found.first is not None
    assert found.first.module == module
    assert found.first.score > 1000
    assert classify_error(found.first) == "wrong result"
    others = [row.score for row in found.rows if not row.wrong]
    assert max(others) < 10


def test_numbers_that_cann_takes_as_float_are_listed():
    rows = json.loads((RUN.parents[2] / "csrc/opapi/aclnn/signatures.json").read_text("utf-8")).values()
    narrow = [row for row in rows if any(kind == "float" for kind, *_ in row.get("params") or ())]
    names = {name.partition(".")[0] for row in narrow for name in row.get("torch") or ()}
    drawn = {name for name in names if name.startswith("aten::normal")}  # no result is judged
    assert {name for name in names - drawn if name.startswith("aten::")} == oracles.SINGLE_NUMBERS


def test_classes_of_what_is_wrong():
    row = replay.Row(0, 0, "judged", "aten::mm", wrong=True)
    assert classify_error(row) == "wrong result"
    assert classify_error(dataclasses.replace(row, lost="bfloat16")) == "lost precision"
    assert classify_error(dataclasses.replace(row, spoilt="3 elements are NaN")) == "overflow or saturation"
    assert classify_error(dataclasses.replace(row, spoilt="its shape is (1,), (2,) is right")) == "wrong result"


def test_nothing_is_wrong_where_nothing_is(recordings):
    found = replay.replay_recording(recordings / HEALTHY)
    assert found.wrong == []
    assert found.steps == [0, 1, 2]
    kinds = {row.kind for row in found.rows}
    assert {"judged", "view", "memory"} <= kinds
    assert found.share >= 0.95
    # What a collective gives comes from other processes: not judged, and said so.
    assert [operator for operator, _, _ in found.unjudged] == ["c10d::allreduce_"]


def test_steps_that_are_not_there(recordings):
    with pytest.raises(TorchportError, match="step 9 was not recorded"):
        replay.replay_recording(recordings / HEALTHY, steps=[9])
    with pytest.raises(TorchportError, match="no operators of rank 7"):
        replay.replay_recording(recordings / HEALTHY, ranks=[7])


def test_without_torch(recordings, monkeypatch):
    monkeypatch.setattr(replay.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TorchportError, match="needs torch") as raised:
        replay.replay_recording(recordings / HEALTHY)
    assert raised.value.hint


def test_a_child_that_dies_is_said(recordings, monkeypatch):
    monkeypatch.setattr(replay.sys, "executable", "/bin/false")
    with pytest.raises(TorchportError, match="ended with status 1"):
        replay.replay_recording(recordings / HEALTHY)


def test_recordings_without_tensors(tmp_path, monkeypatch):
    write(tmp_path)
    assert replay.has_tensors(Operators.read(tmp_path))
    monkeypatch.setattr(replay.layout, "TENSOR", "another")
    assert not replay.has_tensors(Operators.read(tmp_path))
    with pytest.raises(TorchportError, match="step 0 at level tensor, without the content") as raised:
        replay.replay_recording(tmp_path)
    assert "--level tensor" in raised.value.hint


@pytest.mark.parametrize(
    ("operator", "dtype", "device", "settings", "wanted"),
    [
        ("aten::mm", "float32", "cpu", {}, 2.0**-24),
        ("aten::mm", "float32", "npu:0", {"matmul": "hf32", "virtual": True}, 2.0**-24),
        ("aten::mm", "float32", "npu:0", {"matmul": "float32", "virtual": False}, 2.0**-13),
        ("aten::addmm_", "float32", "npu:0", {"matmul": "hf32"}, 2.0**-11),
        ("aten::convolution", "float32", "npu:0", {"convolution": "float16"}, 2.0**-10),
        ("aten::add", "float32", "npu:0", {"matmul": "hf32"}, 2.0**-13),
        ("aten::mm", "bfloat16", "npu:0", {"matmul": "hf32"}, 2.0**-7),
        ("aten::mul", "complex64", "cpu", {}, 2.0**-24),
    ],
)
def test_what_devices_declare(operator, dtype, device, settings, wanted):
    assert precision.get_declared_error(operator, dtype, device, settings)[0] == wanted


def _one_call(folder, *rows):
    """A recording with one step of these calls: (name, arguments, results, inputs, outputs), and what the inputs hold
    after it; a tensor is an array, None for an undefined one, or "unwritten"."""
    source = Given()
    made = Tables(lambda block: source.items.append(("block", block)))

    def tensor(value, storage, version):
        if value is None:
            return -1
        if isinstance(value, str):
            return made.add_tensor(Row([1, 1], "float32", "cpu", storage, elements=1, reason=UNWRITTEN), None)
        dims = [*value.shape, *(stride // value.itemsize for stride in value.strides)]
        row = Row(dims, str(value.dtype), "cpu", storage, version, elements=value.size)
        return made.add_tensor(row, measured(value.reshape(-1)), value.reshape(-1).view("u1"))

    for name, arguments, results, inputs, outputs, *after in rows:
        given = [tensor(value, place, 0) for place, value in enumerate(inputs)]
        gave = [tensor(value, place, 1) for place, value in enumerate(outputs)]
        wrote = [tensor(value, place, 1) for place, value in enumerate(after[0] if after else ())]
        made.add_call(name, "", 0, given, gave, arguments=arguments, results=results, written=wrote)
    return write(folder, 1, lambda: (source, made))


ONE = numpy.ones((1, 1, 1, 1), numpy.float32)
BACKWARD = '[{"t":0},{"t":1},{"t":2},[0],[1,1],[0,0],[1,1],false,[0,0],1,[false,true,false]]'
ALL = '[{"t":0},{"t":1},{"t":2}]'


def test_undefined_results_keep_their_places(tmp_path):
    given = [ONE, ONE * 2, ONE * 3]
    name = "aten::convolution_backward"
    _one_call(
        tmp_path,
        (name, BACKWARD, ALL, given, [None, ONE * 2, None]),
        (name, BACKWARD, '[null,{"t":0},null]', given, [ONE * 2]),
        (name, BACKWARD, ALL, given, [None, ONE * 5, None]),
    )
    found = replay.replay_recording(tmp_path)
    assert [(row.kind, row.wrong) for row in found.rows] == [("judged", False), ("judged", False), ("judged", True)]


def test_nobody_is_to_blame_for_memory_that_was_never_written(tmp_path):
    chance, seven = numpy.float32([1e30]), numpy.float32([7])
    _one_call(
        tmp_path,
        ("aten::detach", '[{"t":0}]', '[{"t":0}]', ["unwritten"], ["unwritten"]),
        ("aten::detach_", '[{"t":0}]', '[{"t":0}]', ["unwritten"], [chance]),
        ("aten::zero_", '[{"t":0}]', '[{"t":0}]', ["unwritten"], [numpy.float32([0])]),
        ("aten::zero_", '[{"t":0}]', '[{"t":0}]', ["unwritten"], [seven]),
    )
    memory, read, written, wrong = replay.replay_recording(tmp_path).rows
    assert memory.kind == "memory"
    assert (read.kind, read.why) == ("not judged", "it reads memory that nobody has written")
    assert (written.kind, written.wrong) == ("judged", False)
    assert (wrong.kind, wrong.wrong) == ("judged", True)


def test_statistics_that_batch_norm_keeps_in_evaluation_are_not_judged(tmp_path):
    one, kept = numpy.float32([1]), numpy.float32([0.5])
    right = ONE * numpy.float32(1 / numpy.sqrt(1 + 1e-5))
    arguments = '[{"t":0},{"t":1},{"t":2},{"t":3},{"t":4},false,0.1,1e-05]'
    given = [ONE * 2, one, one, one, one]  # (2 - 1) / sqrt(1 + 1e-5) * 1 + 1
    name = "aten::native_batch_norm"
    _one_call(
        tmp_path,
        (name, arguments, ALL, given, [right + 1, kept, kept]),
        (name, arguments, ALL, given, [right + 2, kept, kept]),
        (name, arguments.replace("false", "true"), ALL, given, [ONE, kept * 2, kept]),
    )
    rows = replay.replay_recording(tmp_path).rows
    assert [(row.kind, row.wrong, row.result) for row in rows[:2]] == [("judged", False, 0), ("judged", True, 0)]
    assert rows[2].wrong, "in training they are read"


def test_indices_are_judged_by_the_numbers_there(tmp_path):
    given, values = numpy.float32([[3, 1, 3, 2]]), numpy.float32([[3, 3]])
    arguments, results = '[{"t":0},2,1,true,true]', '[{"t":0},{"t":1}]'
    rows = [
        ("aten::topk", arguments, results, [given], [values, numpy.int64([places])])
        for places in ([0, 2], [2, 0], [0, 3])
    ]
    _one_call(tmp_path, *rows)
    assert [row.wrong for row in replay.replay_recording(tmp_path).rows] == [False, False, True]


def test_a_view_by_strides_shows_its_own_elements_alone(tmp_path):
    """Without the gaps of its input it reads memory behind the end of it, in which there is chance."""
    part = numpy.arange(20, dtype=numpy.float32).reshape(4, 5)[:, :4]
    one, line = numpy.ascontiguousarray(part).reshape(4, 2, 2), numpy.float32([0, 4])
    alias, strided = '[{"t":0},[4,2,2],[5,2,1]]', '[{"t":0},[2],[%d],null]'
    rows = [
        ("aten::_reshape_alias", alias, '[{"t":0}]', [part], [one]),
        ("aten::_reshape_alias", alias, '[{"t":0}]', [part], [one + 1]),
        ("aten::as_strided", strided % 4, '[{"t":0}]', [part], [line]),
        ("aten::as_strided", strided % 40, '[{"t":0}]', [part], [line]),
        ("aten::as_strided", strided % 5, '[{"t":0}]', [part], [line + numpy.float32([0, 1])]),
    ]
    _one_call(tmp_path, *rows)
    right, wrong, gap, beyond, first = replay.replay_recording(tmp_path).rows
    assert (right.wrong, wrong.wrong, first.wrong) == (False, True, False)
    assert gap.why == beyond.why == "it shows memory beside its input"


def test_a_cast_has_one_right_value(tmp_path):
    given = numpy.float32([1 + 2**-11 + 2**-12, 2])
    arguments = '[{"t":0},{"dtype":"float16"},null,null,null,false,null]'
    nearest, cut = numpy.float16([1 + 2**-10, 2]), numpy.float16([1, 2])
    rows = [("aten::_to_copy", arguments, '[{"t":0}]', [given], [made]) for made in (nearest, cut)]
    _one_call(tmp_path, *rows)
    right, wrong = replay.replay_recording(tmp_path).rows
    assert (right.kind, right.wrong) == ("judged", False)
    assert wrong.wrong and wrong.spoilt == "50.00% of the elements differ"


def test_gradients_that_a_scaler_divides_are_judged(tmp_path):
    gradient, scale = numpy.float32([4, 8]), numpy.float32([0.25])
    no, yes = numpy.float32([0]), numpy.float32([1])
    name, arguments = "aten::_amp_foreach_non_finite_check_and_unscale_", '[[{"t":0}],{"t":1},{"t":2}]'
    infinite = numpy.float32([numpy.inf, 8])

    def after(given, found, wrote, said):
        return name, arguments, "[]", [given, found, scale], [], [wrote, said]

    _one_call(
        tmp_path,
        after(gradient, no, gradient / 4, no),
        after(gradient, no, gradient / 4 * numpy.float32(1.001), no),
        after(infinite, no, infinite / 4, yes),
        after(infinite, no, infinite / 4, no),
    )
    rows = replay.replay_recording(tmp_path).rows
    assert [(row.kind, row.wrong, row.bytes) for row in rows] == [
        ("judged", False, 12),
        ("judged", True, 12),
        ("judged", False, 12),
        ("judged", True, 12),
    ]


def test_a_gradient_may_be_reduced_to_what_was_broadcast(tmp_path):
    grad = given = numpy.float32([[-1, -2], [-3, -4]])
    weight = numpy.float32([0.5, 0.5])
    whole = grad * given  # of negative numbers
    arguments, results = '[{"t":0},{"t":1},{"t":2}]', '[{"t":0},{"t":1}]'
    by_given = grad * numpy.float32(0.5)
    made = (whole, whole.sum(0, keepdims=True), whole.sum(0, keepdims=True) * 2, whole.sum(1, keepdims=True)[:1])
    rows = [
        ("aten::_prelu_kernel_backward", arguments, results, [grad, given, weight.reshape(1, 2)], [by_given, one])
        for one in made
    ]
    _one_call(tmp_path, *rows)
    assert [row.wrong for row in replay.replay_recording(tmp_path).rows] == [False, False, True, True]


def test_which_steps_and_ranks_are_judged():
    processes = tuple(
        ProcessOperators(pid, rank, {step: Path() for step in range(10)}, (), None, (), ())
        for pid, rank in ((7, 0), (8, 1))
    )
    recorded = Operators(Path(), Recording(Path(), {}, (), None), processes)
    assert replay.choose_steps(recorded) == {0: [0, 1, 2, 9], 1: [0, 9]}
    assert replay.choose_steps(recorded, parted=5) == {0: [0, 1, 2, 5, 9], 1: [0, 5, 9]}
    assert replay.choose_steps(recorded, parted=50) == replay.choose_steps(recorded)
    assert replay.choose_steps(recorded, [1]) == {1: [0, 1, 2, 9]}


def test_what_was_judged_is_said_in_words():
    one = replay.Replay([], {0: [0, 1, 9]}, 10)
    assert (one.reach, one.left_out, one.steps) == ("steps 0, 1, 9", 7, [0, 1, 9])
    many = replay.Replay([], {0: [0, 1], 1: [0], 2: [0]}, 6)
    assert many.reach == "steps 0, 1 of rank 0; step 0 of ranks 1, 2"
    assert list(Culprit([], many, (2, 2)).list_unchecked()) == [
        "the operators of 2 recorded steps (steps 0, 1 of rank 0; step 0 of ranks 1, 2 were computed again)"
    ]
    assert not list(Culprit([], replay.Replay([], {0: [0]}, 1), (1, 1)).list_unchecked())


def test_the_bad_card_is_named():
    row = replay.Row(3, 0, "judged", "aten::silu", rank=1, wrong=True)
    found = Culprit([], replay.Replay([row], {0: [3], 1: [3]}, 2), (1, 1), port=Path("npu"))
    assert "step 3 of rank 1, on no other rank: " in found.findings[0].message
    assert "torchport case npu --step 3 --rank 1 --op aten::silu:0" in found.findings[0].hint
    both = [row, dataclasses.replace(row, rank=0)]
    said = Culprit([], replay.Replay(both, {0: [3], 1: [3]}, 2), (1, 1)).findings[0].message
    assert "on no other rank" not in said
