"""Several ranks put together, and held against one device."""

from __future__ import annotations

import json
import math

import pytest
import recordings

from torchport.cli import main
from torchport.compare.assembly import assemble_ranks, can_assemble
from torchport.compare.shards import Held, find_layouts, strip_wrappers

STEPS = 6
# Parameters of one device: numbers, norm before the first step, gradient.
WHOLE = {
    "norm.weight": (16, 4.0, 0.5),
    "up.weight": (64, 3.0, 1.3),
    "down.weight": (64, 2.5, 1.2),
    "bias": (4, 0.0, 0.3),
}


def events(parameters, loss=1.0, dtype="float32", sites=("train.py:9",)):
    """The events of one process: (numbers, norm, gradient) by parameter; a gradient that changes is a list."""
    names = list(parameters)
    sizes = [row[0] for row in parameters.values()]
    yield {"kind": "precision", "dtype": dtype}
    yield {"kind": "initial", "optimizer": 0, "norms": [row[1] for row in parameters.values()], "sizes": sizes}
    yield {"kind": "parameters", "optimizer": 0, "step": 0, "names": names, "sizes": sizes}
    yield {"kind": "settings", "optimizer": 0, "step": 0, "groups": [{"lr": 0.1}]}
    for step in range(STEPS):
        for site in sites:
            value = loss[step] if isinstance(loss, list) else loss / (step + 1)
            launches = {"device": "npu", "launches": 10 * step}
            yield {"kind": "loss", "site": site, "by": "backward", "value": value, **launches, "elapsed": 0.1 * step}
        gradient = [row[2][step] if isinstance(row[2], list) else row[2] for row in parameters.values()]
        # As SGD changes them, so that the changes of parts add up as well.
        same = {"optimizer": 0, "step": step, "norm": [1.0] * len(names), "change": [0.02 * one for one in gradient]}
        yield {"kind": "norms", **same, "gradient": gradient}
        done = {"device": "npu", "gradient": "npu", "launches": 10 * step + 5, "seconds": 0.1}
        yield {"kind": "step", "step": step, **done, "elapsed": 0.1 * step}


def split(name, *, size=(32, 32), norm=None, gradient=None):
    """The parts of a parameter that two ranks have: parts of the norm and the gradient, as squares add up."""
    numbers, whole, slope = WHOLE[name]
    assert sum(size) == numbers
    norms = norm or (0.6 * whole, 0.8 * whole)
    slopes = gradient or (0.8 * slope, 0.6 * slope)
    return [{name: (size[rank], norms[rank], slopes[rank])} for rank in range(2)]


def write(folder, *processes):
    folder.mkdir(parents=True)
    return recordings.write(folder, *processes)


def compare(tmp_path, capsys, many, one=None, *words):
    """The exit code and the result of `torchport compare one many`."""
    write(tmp_path / "one", events(WHOLE) if one is None else one)
    write(tmp_path / "many", *many)
    code = main(["compare", str(tmp_path / "one"), str(tmp_path / "many"), "--json", *words])
    return code, json.loads(capsys.readouterr().out)


def tensor_parallel(**changed):
    up, down = split("up.weight"), split("down.weight", size=(40, 24))
    whole = {name: WHOLE[name] for name in ("norm.weight", "bias")}
    return [{**whole, **up[rank], **down[rank], **changed.get(f"rank{rank}", {})} for rank in range(2)]


def test_parts_and_copies_are_the_training_of_one_device(tmp_path, capsys):
    code, result = compare(tmp_path, capsys, [events(one) for one in tensor_parallel()])
    assert code == 0, result
    assert "4 of 4 parameters put together of 2 ranks, 2 of them of parts" in result["data"]["reason"]
    assert "the loss of a step is that of each rank" in result["data"]["reason"]
    assert "data, and what modules give, of the ranks" in result["data"]["unchecked"]
    quantities = {row["kind"]: row["compared"] for row in result["data"]["quantities"]}
    assert quantities["gradient"] == 4 * STEPS


def test_ranks_that_have_another_gradient_of_one_parameter_are_named(tmp_path, capsys):
    odd = {"norm.weight": (16, 4.0, [0.5, 0.5, 0.4, 0.4, 0.4, 0.4])}
    code, result = compare(tmp_path, capsys, [events(one) for one in tensor_parallel(rank1=odd)])
    assert code == 1
    first = next(one for one in result["findings"] if one["code"] == "TP369")
    assert first["evidence"]["step"] == 2
    assert "that of norm.weight is 0.5 on rank 0, 0.4 on rank 1" in first["message"]


def test_one_factor_for_all_gradients_is_named(tmp_path, capsys):
    twice = [{name: (size, norm, 2 * slope) for name, (size, norm, slope) in WHOLE.items()}] * 2
    code, result = compare(tmp_path, capsys, [events(one) for one in twice])
    assert code == 1
    (said,) = (one["message"] for one in result["findings"] if one["code"] == "TP369")
    assert said.startswith("the gradients of all parameters are 2 times what one device has in step 0")
    assert "the number of ranks" in said


def test_parameters_that_are_others_are_named_by_how_ranks_hold_them(tmp_path, capsys):
    twice = {name: (WHOLE[name][0], WHOLE[name][1], 2 * WHOLE[name][2]) for name in ("norm.weight", "bias")}
    code, result = compare(tmp_path, capsys, [events({**one, **twice}) for one in tensor_parallel()])
    assert code == 1
    (said,) = (one["message"] for one in result["findings"] if one["code"] == "TP369")
    assert "2 of 4 parameters are 2 times" in said
    assert said.endswith("They are all parameters that each rank has as a whole")


@pytest.mark.parametrize(
    ("losses", "way"),
    [
        ((1.0, 1.0), "that of each rank"),
        ((0.4, 1.6), "the mean of the ranks'"),
        ((0.4, 0.6), "the sum of the ranks'"),
        ((7.0, 1.0), "that of rank 1"),
    ],
)
def test_losses_are_put_together_in_the_way_that_fits(tmp_path, capsys, losses, way):
    code, result = compare(tmp_path, capsys, [events(WHOLE, loss) for loss in losses])
    assert code == 0
    assert f"the loss of a step is {way};" in result["data"]["reason"]


def test_several_losses_of_a_step_are_one(tmp_path, capsys):
    halves = [events(WHOLE, 0.5, sites=("train.py:9", "train.py:9")) for _ in range(2)]
    code, result = compare(tmp_path, capsys, halves)
    assert code == 0, result["data"]["reason"]
    assert "the loss of a step is that of each rank" in result["data"]["reason"]


def test_losses_that_fit_in_no_way_are_not_compared(tmp_path, capsys):
    code, result = compare(tmp_path, capsys, [events(WHOLE, loss) for loss in (0.3, 5.0)])
    assert code == 0
    assert any(row.startswith("losses: no way to put the ranks' together") for row in result["data"]["unchecked"])


def test_a_loss_that_parts_later_is_named(tmp_path, capsys):
    late = [1.0, 0.5, 1 / 3, 0.3, 0.3, 0.3]
    code, result = compare(tmp_path, capsys, [events(WHOLE, loss) for loss in (1.0, late)])
    assert code == 1
    assert result["findings"][-1]["code"] == "TP301"
    assert result["findings"][-1]["evidence"]["step"] == 3


def test_nothing_that_can_be_put_together_is_undecided(tmp_path, capsys):
    other = {"flat": (74, 9.0, 3.0)}
    code, result = compare(tmp_path, capsys, [events(other, loss) for loss in (0.3, 5.0)])
    assert code == 4
    assert "neither the parameters nor the losses" in result["data"]["reason"]


def test_weights_of_one_rank_that_begin_otherwise_are_named(tmp_path, capsys):
    other = {**WHOLE, "up.weight": (64, 3.3, 1.3)}
    code, result = compare(tmp_path, capsys, [events(WHOLE), events(other)])
    assert code == 1
    assert any("rank 1 starts from other weights: up.weight" in one["message"] for one in result["findings"])


def test_parameters_that_do_not_add_up_are_listed(tmp_path, capsys):
    parts = [{**{key: WHOLE[key] for key in ("norm.weight", "bias")}, "up.weight": (32, 2.0, 0.5)} for _ in range(2)]
    code, result = compare(tmp_path, capsys, [events(one) for one in parts])
    assert code == 0
    assert any("2 of 4 parameters, of which" in row and "up.weight" in row for row in result["data"]["unchecked"])


def test_a_control_run_of_one_device_is_the_yardstick(tmp_path, capsys):
    moved = {name: (size, norm, slope * 1.02) for name, (size, norm, slope) in WHOLE.items()}
    write(tmp_path / "control", events(moved, dtype="float32"))
    many = [{name: (size, norm, slope * 1.05) for name, (size, norm, slope) in WHOLE.items()}] * 2
    code, result = compare(
        tmp_path, capsys, [events(one) for one in many], None, "--control", str(tmp_path / "control")
    )
    assert code in (0, 4), result["data"]["reason"]
    assert result["data"]["yardstick"] is not None


def test_a_control_run_of_the_ranks_is_the_yardstick_where_they_come_first(tmp_path, capsys):
    noisy = split("up.weight", gradient=([0.8 * 1.3] + [0.8 * 1.3 * 1.5] * (STEPS - 1), 0.6 * 1.3))
    plain = split("up.weight")
    for name, ranks in (("ranks", plain), ("control", noisy)):
        write(tmp_path / name, *(events({**WHOLE, **part}) for part in ranks))
    other = {**WHOLE, "up.weight": (64, 3.0, [1.3] + [1.3 * 1.2] * (STEPS - 1))}
    write(tmp_path / "single", events(other))
    words = ["compare", str(tmp_path / "ranks"), str(tmp_path / "single"), "--json"]
    assert main(words) == 1
    assert "up.weight" in str(json.loads(capsys.readouterr().out)["findings"])
    assert main([*words, "--control", str(tmp_path / "control")]) == 0


@pytest.mark.parametrize("backwards", [False, True])
def test_a_control_of_another_number_of_processes_is_refused(tmp_path, capsys, backwards):
    write(tmp_path / "ranks", *(events({**WHOLE, **part}) for part in split("up.weight")))
    write(tmp_path / "single", events(WHOLE))
    order = ("ranks", "single") if backwards else ("single", "ranks")
    words = [str(tmp_path / name) for name in order]
    assert main(["compare", *words, "--control", words[1]]) == 2
    assert "processes of the control trained" in capsys.readouterr().err


def test_either_order_is_compared(tmp_path, capsys):
    write(tmp_path / "one", events(WHOLE))
    write(tmp_path / "many", *(events(one) for one in tensor_parallel()))
    assert main(["compare", str(tmp_path / "many"), str(tmp_path / "one"), "--json"]) == 0
    assert "4 of 4 parameters put together" in json.loads(capsys.readouterr().out)["data"]["reason"]


def test_as_many_ranks_are_compared_one_by_one(tmp_path):
    both = [write(tmp_path / name, *(events(WHOLE) for _ in range(2))) for name in ("a", "b")]
    assert not can_assemble(*both)


def held(rank, **parameters):
    return {name: Held(rank, name, size, norm, 0) for name, (size, norm) in parameters.items()}


def test_ranks_that_hold_the_same_parts_are_copies():
    one = held(0, w=(64, 5.0), v=(64, 2.0))
    parts = [held(rank, w=(32, (3.0, 4.0)[rank % 2]), v=(32, math.sqrt(2.0))) for rank in range(4)]
    layouts = find_layouts(one, parts)
    # The halves of v have one norm: which ranks share one, w says.
    assert [[part.rank for part in copies] for copies in layouts["v"].parts] == [[0, 2], [1, 3]]
    assert [[part.rank for part in copies] for copies in layouts["w"].parts] == [[0, 2], [1, 3]]


def test_stages_that_count_their_layers_from_0_are_renamed():
    one = held(
        0,
        **{
            f"layers.{number}.{name}": row
            for number in range(4)
            for name, row in (("w", (64, 2.0 + number)), ("norm", (16, 4.0)))
        },
    )
    stages = [
        held(
            rank,
            **{
                f"layers.{number}.{name}": row
                for number in range(2)
                for name, row in (("w", (64, 2.0 + number + 2 * rank)), ("norm", (16, 4.0)))
            },
        )
        for rank in range(2)
    ]
    layouts = find_layouts(one, stages)
    assert {name: [part.rank for part in layout.parts[0]] for name, layout in layouts.items()} == {
        f"layers.{number}.{name}": [number // 2] for number in range(4) for name in ("w", "norm")
    }


def test_names_of_wrappers_are_left_out():
    assert strip_wrappers("module._orig_mod.layers.0._checkpoint_wrapped_module.weight") == "layers.0.weight"
    assert strip_wrappers("_fsdp_wrapped_module.head.weight") == "head.weight"


def test_a_recording_of_before_has_no_parameters_to_put_together(tmp_path):
    old = [[event for event in events(WHOLE) if event["kind"] != "initial"] for _ in range(3)]
    assembly = assemble_ranks(write(tmp_path / "one", old[0]), write(tmp_path / "many", *old[1:]))
    assert assembly.pairs == ()
    assert assembly.losses is not None
