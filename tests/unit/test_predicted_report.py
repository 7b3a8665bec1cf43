"""What a user sees of a prediction, in the terminal and on the page, and how samples and loaders are counted."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path

import pytest

from torchport.predict.chosen import choose_step
from torchport.predict.prediction import _find_cause, _loading
from torchport.report import render_prediction
from torchport.report.html.prediction import _ticks, render_prediction_page
from torchport.results.prediction import Loading, Peak, Prediction, Ranks, Read, Step, Task, Trial

GIB = 1 << 30
STEP = Step(
    time=100.0,
    busy=90.0,
    exposed=0.0,
    units={"cube": 60.0, "stream": 30.0},
    operators={"aclnnMatmul": (12, 60.0), "aclnnAdd": (40, 30.0)},
    launches=52,
    converted=0.0,
    bound="cube",
)
PEAK = Peak(
    allocated=10 * GIB,
    reserved=12 * GIB,
    total=60 * GIB,
    owners={"weights": 4 * GIB, "gradients": 4 * GIB, "activations": 2 * GIB},
    modules={"blocks.*.up": GIB},
    rounding=1 << 20,
    fragmentation=2 * GIB,
    curve=(4 * GIB, 7 * GIB, 10 * GIB, 8 * GIB),
)
ONE = Ranks(1, True, "", STEP, 70.0, 140.0, 64.0, 2, (64.0, 64.0), 640.0, None, PEAK, GIB, 9.0, 0.2, 0.1)
FOUND = Prediction(
    soc="Ascend910B3",
    steps=3,
    fits=True,
    failure="",
    one=ONE,
    many=None,
    validated="Nothing validates step times on Ascend910B3.",
    reads=(Read("train.py", 7, "item", 3),),
    unknown_reads=3,
    unfilled=0,
    unfilled_read=0,
    shapes={"aclnnNonzeroV2": 4},
    sizes="as large as they can be",
    compiled=False,
    advice=(),
    timeline=(
        Task("aclnnMatmul", 0, "cube", at=0.0, us=60.0, shapes=((4, 4),)),
        Task("HcclAllReduce", 3, "collective", at=40.0, us=30.0, shapes=()),
    ),
)


def said(**changes: object) -> str:
    return render_prediction(dataclasses.replace(FOUND, **changes))


def test_one_that_fits() -> None:
    text = said()
    assert "memory    fits: 10.00 GiB at the peak (12.00 GiB reserved) of 60.00 GiB" in text
    assert "weights 4.00 GiB, gradients 4.00 GiB, activations 2.00 GiB" in text
    assert "activations most in blocks.*.up 1.00 GiB" in text
    assert "1 card    100.0 ms a step (70.0 to 140.0), 640 samples/s (64 a step)" in text
    assert "bound by matrix products and convolutions; ms by unit: cube 60.0, stream 30.0" in text
    assert "Nothing validates" in text and "train.py:7  item, 3 times: zero" in text
    assert "aclnnNonzeroV2, 4 times: taken as large as they can be" in text
    assert "torch.compile" not in text and "torch.compile is left out" in said(compiled=True)


def test_one_that_does_not_fit_and_what_would() -> None:
    full = dataclasses.replace(ONE, fits=False, failure="NPU out of memory", step=None)
    tried = (
        Trial("--batch-size 32", fits=True, peak=5 * GIB),
        Trial("the optimizer without foreach (foreach=False)", fits=False, peak=None),
    )
    text = said(one=full, fits=False, failure="NPU out of memory", advice=tried)
    assert "memory    does not fit: NPU out of memory" in text
    assert "held when it was out: weights 4.00 GiB" in text
    assert "tried     --batch-size 32: fits, 5.00 GiB" in text
    assert "(foreach=False): does not fit" in text and "ms a step" not in text
    assert "not tried" not in text
    text = said(one=full, fits=False, failure="NPU out of memory", advice=tried[1:])
    assert "not tried a smaller batch: the command has no option for it" in text


def test_several_ranks() -> None:
    units = {**STEP.units, "collective": 20.0}
    eight = dataclasses.replace(
        ONE, ranks=8, step=dataclasses.replace(STEP, time=125.0, exposed=20.0, units=units), throughput=4096.0
    )
    text = said(many=eight)
    assert "8 cards   fits: 10.00 GiB at the peak of the fullest" in text
    assert "communication that nothing hides: 20.0 ms" in text and "scaling   80% of 8 times one card" in text
    assert "1 card    fits" in text
    # Without a collective there is nothing to scale.
    alone = said(many=dataclasses.replace(eight, step=STEP))
    assert "the ranks exchange nothing" in alone and "% of 8 times" not in alone
    # One card has failed, and is no measure.
    failed = Ranks(
        *(1, False, "the script failed", None, math.nan, math.nan, 0.0, 0, (), math.nan, None, None, 0, 0.0),
        *(math.nan, math.nan),
    )
    text = said(one=failed, many=eight)
    assert "1 card    the script failed" in text and "scaling" not in text and "8 cards   125.0 ms" in text


@pytest.mark.parametrize(
    ("loading", "words"),
    [
        (Loading(40.0, 4, 100.0), "40.0 ms of this machine's processor a step, in 4 workers: behind the step"),
        (Loading(400.0, 2, 200.0), "in 2 workers: it bounds the step, 200.0 ms"),
        (Loading(40.0, 0, 140.0), "in the program itself (num_workers=0): 140.0 ms a step with it"),
    ],
)
def test_data_loader(loading: Loading, words: str) -> None:
    assert words in said(one=dataclasses.replace(ONE, loading=loading))


def test_loader_is_shared_by_its_workers_and_waited_for_without() -> None:
    def loading(workers: int, taken: int = 3) -> Loading | None:
        note = {"seconds": 2.0, "batches": 10, "workers": workers, "taken": taken}
        return _loading({"loading": note, "marks": [1.0, 2.0, 3.0]}, STEP)

    assert loading(4) == Loading(200.0, 4, 100.0)
    assert loading(1) == Loading(200.0, 1, 200.0)
    assert loading(0) == Loading(200.0, 0, 300.0)
    # Gradients of two batches in a step.
    assert loading(1, taken=6) == Loading(400.0, 1, 400.0)
    assert _loading({"loading": None, "marks": [1.0]}, STEP) is None


def test_samples_are_those_of_the_module_that_is_given_the_fewest() -> None:
    def samples(*calls: list[int]) -> float:
        """Of two equal steps, by what each module has been given at their end."""
        half = [[count // 2, given // 2] for count, given in calls]
        return choose_step({"marks": [1.0, 2.0], "memory": {"calls": [half, list(calls)]}}).samples

    assert samples([2, 128]) == 64
    assert samples([4, 128]) == 64  # gradients of two batches
    assert samples([2, 128], [2, 8192]) == 64  # a loss on tokens
    assert samples([4, 256], [2, 128]) == 64  # a discriminator sees real and made images
    assert samples([2, 128], [1, 1]) == 64  # called once, before the steps
    assert samples() == 0


def test_the_last_step_with_the_usual_batch_is_timed() -> None:
    def choose(*batches: int) -> tuple[int, float]:
        called = [[[number + 1, sum(batches[: number + 1])]] for number in range(len(batches))]
        found = choose_step({"marks": [1.0] * len(batches), "memory": {"calls": called}})
        assert found.each == batches
        return found.index, found.samples

    assert choose(256, 256, 256) == (2, 256)
    assert choose(256, 256, 8) == (1, 256)  # the end of an epoch
    assert choose(256, 8, 256, 256) == (3, 256)
    assert choose(256, 8) == (0, 256)
    assert choose(8, 9, 10) == (2, 10)  # all different: the largest
    assert choose_step({"marks": [1.0, 2.0], "memory": None}).index == 1


def test_steps_of_different_batches_and_a_slow_loader_are_said() -> None:
    text = said(one=dataclasses.replace(ONE, timed=2, batches=(256.0, 256.0, 8.0)))
    assert "step 2 is timed: the steps had 256, 256, 8 samples on a card" in text
    assert "is timed" not in said(one=ONE)
    text = said(one=dataclasses.replace(ONE, loading=Loading(40.0, 0, 140.0)))
    assert "640 samples/s (64 a step), 457 with the data loader as fast as on this machine" in text


LAUNCHER = """[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/a/train.py", line 31, in <module>
[rank1]:     shard = shards[rank]
[rank1]: KeyError: 'no such shard'
E0101 00:00:00.000000 99 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 1
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
============================================================
"""


@pytest.mark.parametrize(
    ("tail", "said"), [(LAUNCHER, "KeyError: 'no such shard'"), ("one\ntwo\n====\n\n", "two"), ("\n===\n", "no output")]
)
def test_the_cause_is_not_the_launcher_s_last_line(tail: str, said: str) -> None:
    assert said in _find_cause(tail)


def test_page_has_the_curve_the_timeline_and_the_tables() -> None:
    text = render_prediction_page(FOUND)
    assert text.count("<svg") == 2 and "GiB allocated over the timed step" in text
    assert "blocks.*.up" in text and "<td>aclnnMatmul<td>12<td>60.000" in text
    slices = re.findall(r"<rect x=([\d.]+) y=(\d+) width=([\d.]+) height=\d+ fill=\"#\w+\"><title>(\w+)", text)
    found = {name: (float(left), int(top), float(width)) for left, top, width, name in slices}
    matmul, reduce = found["aclnnMatmul"], found["HcclAllReduce"]
    # From 0 to 60 and from 40 to 70 microseconds, a row for each stream.
    assert matmul[0] == 0 and reduce[0] == pytest.approx(matmul[2] * 40 / 60, rel=0.01)
    assert reduce[2] == pytest.approx(matmul[2] / 2, rel=0.01) and reduce[1] > matmul[1]


@pytest.mark.parametrize("end", [0.07, 1.0, 9.99, 16100.0, 1e7])
def test_moments_on_the_timeline_are_few_round_and_inside(end: float) -> None:
    found = _ticks(end)
    assert 4 <= len(found) <= 9 and found[0] == 0 and 0.6 * end < found[-1] <= end
    assert f"{found[1]:e}"[0] in "125"


def test_json_has_no_nan() -> None:
    lost = dataclasses.replace(ONE, low=math.nan, throughput=math.inf)
    found = json.dumps(dataclasses.replace(FOUND, one=lost).to_json(), allow_nan=False)
    assert json.loads(found)["one"]["throughput"] is None


def test_the_json_is_that_of_before() -> None:
    """By torchport at a3c4bfc, whose report read the data by key; `timed` and `batches` have come since."""
    before = json.loads((Path(__file__).parent / "data" / "prediction.json").read_text())
    eight = dataclasses.replace(ONE, ranks=8, loading=Loading(40.0, 4, 100.0), low=math.nan)
    tried = (Trial("--batch-size 32", fits=True, peak=5 * GIB),)
    found = dataclasses.replace(FOUND, many=eight, advice=tried)
    assert json.loads(json.dumps(found.to_json(), allow_nan=False)) == before
