"""Two printed logs: numbers are read in each format, and no faulty pair is within the rule of thumb."""

from __future__ import annotations

import gzip
import json
import math
import random
from pathlib import Path

import pytest

from torchport.cli import main
from torchport.compare.printed_logs import OUTSIDE, UNDECIDED, WITHIN, compare_logs
from torchport.errors import TorchportError
from torchport.logs import Printed, read_numbers
from torchport.logs.pairing import ORDER, collect_series, pair_series

STEPS = 60
# Each as the source that prints it has it: its lines, and some of the numbers as (name, value, step, epoch).
FORMATS: dict[str, tuple[str, list[tuple[str, float, int | None, float | None]]]] = {
    "Trainer": (
        "{'loss': 1.25, 'grad_norm': 0.5, 'learning_rate': 5e-05, 'epoch': 0.1}",
        [("loss", 1.25, None, 0.1), ("learning_rate", 5e-5, None, 0.1)],
    ),
    "Trainer, numbers in quotes": ("{'loss': '1.25', 'epoch': '0.1'}", [("loss", 1.25, None, 0.1)]),
    "Trainer with a step": ("{'loss': 1.25, 'step': 10, 'epoch': 0.1}", [("loss", 1.25, 10, 0.1)]),
    "Trainer and its bar": (
        "  2%|2         | 10/500 [00:05<04:00,  2.0it/s]\r      \r{'loss': 1.25, 'epoch': 0.02}\r 2%|2 | 11/500 [00:05<1]",
        [("loss", 1.25, 10, 0.02)],
    ),
    "Trainer at its end": (
        "***** eval metrics *****\n  epoch                   =        3.0\n  eval_loss               =     0.4012",
        [("eval_loss", 0.4012, None, 3.0)],
    ),
    "trainer_state.json": (
        '{\n "log_history": [\n  {\n   "epoch": 0.1,\n   "loss": 1.25,\n   "step": 10\n  },\n  {\n   "epoch": 0.2,\n'
        '   "loss": NaN,\n   "step": 20\n  }\n ],\n "max_steps": 500\n}',
        [("loss", 1.25, 10, 0.1), ("loss", math.nan, 20, 0.2), ("max_steps", 500, None, None)],
    ),
    "trainer_state.json in a line": (
        '{"log_history": [{"epoch": 0.1, "loss": 1.25, "step": 10}, {"epoch": 0.2, "loss": 1.5, "step": 20}]}',
        [("loss", 1.25, 10, 0.1), ("loss", 1.5, 20, 0.2)],
    ),
    "Megatron": (
        " [2024-05-05 10:00:00] iteration       10/     500 | consumed samples:          640 | elapsed time per "
        "iteration (ms): 123.4 | learning rate: 1.000000E-04 | global batch size:    64 | lm loss: 1.230000E+00 | "
        "loss scale: 1.0 | grad norm: 0.523 | number of skipped iterations:   0 |",
        [("lm_loss", 1.23, 10, None), ("grad_norm", 0.523, 10, None), ("loss_scale", 1.0, 10, None)],
    ),
    "Megatron, evaluation": (
        " validation loss at iteration 100 | lm loss value: 2.345678E+00 | lm loss PPL: 1.044E+01 | ",
        [("val_lm_loss_value", 2.345678, 100, None)],
    ),
    "mmcv": (
        "2022-01-01 10:00:00,000 - mmdet - INFO - Epoch [2][50/500]\tlr: 1.000e-03, eta: 0:10:00, time: 0.200, "
        "data_time: 0.010, memory: 3000, loss_cls: 1.0000, loss: 2.0000",
        [("loss", 2.0, 550, 2), ("lr", 1e-3, 550, 2), ("loss_cls", 1.0, 550, 2)],
    ),
    "mmengine": (
        "01/02 10:00:00 - mmengine - INFO - Epoch(train)  [2][ 50/500]  lr: 1.0000e-03  eta: 0:10:00  time: 0.2000  "
        "data_time: 0.0100  memory: 3000  loss: 2.0000\n"
        "01/02 10:00:00 - mmengine - INFO - Epoch(val) [2][100/100]    coco/bbox_mAP: 0.1230  data_time: 0.1",
        [("loss", 2.0, 550, 2), ("val_coco_bbox_map", 0.123, 200, 2)],
    ),
    "mmengine, iterations": (
        "mmengine - INFO - Iter(train) [   50/20000]  lr: 9.9e-03  eta: 1:00:00  decode.acc_seg: 40.1  loss: 2.1",
        [("loss", 2.1, 50, None), ("decode_acc_seg", 40.1, 50, None)],
    ),
    "Ultralytics": (
        "      Epoch    GPU_mem   box_loss   cls_loss  Instances       Size\n"
        "        2/3      2.12G      1.234      2.345         22        640: 100%|####| 4/4 [00:01<00:00,  3.1it/s]\n"
        "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100%|##| 1/1\n"
        "                   all          4         17      0.654        0.6      0.712      0.512",
        [("box_loss", 1.234, 8, 2), ("cls_loss", 2.345, 8, 2), ("map50_95", 0.512, None, 2)],
    ),
    "results.csv": (
        "                  epoch,         train/box_loss,      metrics/mAP50(B)\n"
        "                      0,                1.234,               0.512",
        [("train_box_loss", 1.234, None, 0)],
    ),
    "Lightning": (
        "Epoch 0:  40%|4  | 200/500 [00:10<00:15, 20.0it/s, v_num=0, train_loss=1.200]\r"
        "Epoch 1:  40%|4  | 200/500 [00:10<00:15, 20.0it/s, v_num=0, train_loss=1.100]",
        [("train_loss", 1.2, 200, 0), ("train_loss", 1.1, 700, 1)],
    ),
    "metrics.csv": (
        "epoch,step,train_loss,val_loss\n0,9,1.2,\n0,19,,1.3",
        [("train_loss", 1.2, 9, 0), ("val_loss", 1.3, 19, 0)],
    ),
    "MindSpore": ("epoch: 2 step: 10, loss is 1.2", [("loss", 1.2, 10, 2)]),
    "MindSpore Transformers": (
        "INFO - { Epoch:[  2/  2], step:[    2/  100], loss:[10.620/10.600], per_step_time: 200ms, lr: 1e-05, "
        "overflow cond: False, loss_scale: 1.0",
        [("loss", 10.62, 102, 2), ("loss_average", 10.6, 102, 2), ("lr", 1e-5, 102, 2)],
    ),
    "ms-swift": (
        '{"loss": 1.2, "learning_rate": 1e-05, "memory(GiB)": 30.1, "epoch": 0.1, "global_step/max_steps": "10/500"}',
        [("loss", 1.2, 10, 0.1)],
    ),
    "LLaMA-Factory": (
        '{"current_steps": 10, "total_steps": 500, "loss": 1.2, "lr": 5e-05, "epoch": 0.1, "elapsed_time": "0:00:10"}',
        [("loss", 1.2, 10, 0.1), ("total_steps", 500, 10, 0.1)],
    ),
    "torchtitan": (
        "[rank0]:[titan] 2024-05-05 10:00:00,000 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  7.84000  "
        "\x1b[33mgrad_norm:  1.2000  \x1b[36mmemory: 23.00GiB(24.00%)  \x1b[34mtps: 5,000  \x1b[35mmfu: 9.70%\x1b[39m",
        [("loss", 7.84, 10, None), ("tps", 5000, 10, None)],
    ),
    "pytorch/examples mnist": (
        "Train Epoch: 2 [640/60000 (1%)]\tLoss: 1.200000\nTest set: Average loss: 0.0567, Accuracy: 9810/10000 (98%)",
        [("loss", 1.2, 60640, 2), ("test_average_loss", 0.0567, None, None), ("test_accuracy", 98.1, None, None)],
    ),
    "pytorch/examples imagenet": (
        "Epoch: [1][ 10/500]\tTime  0.100 ( 0.200)\tLoss 6.9000e+00 (6.9500e+00)\tAcc@1   0.50 (  0.40)\n"
        "Test: [ 10/100]\tTime  0.1 ( 0.2)\tLoss 6.9 (6.95)\tAcc@1 0.5 (0.4)",
        [("loss", 6.9, 10, 1), ("loss_average", 6.95, 10, 1), ("acc@1", 0.5, 10, 1), ("test_loss", 6.9, 10, None)],
    ),
    "nanoGPT": (
        "step 100: train loss 1.2000, val loss 1.3000\niter 100: loss 1.2345, time 12.30ms, mfu 1.20%",
        [("train_loss", 1.2, 100, None), ("val_loss", 1.3, 100, None), ("loss", 1.2345, 100, None)],
    ),
    "Keras": (
        "Epoch 2/10\n500/500 [==============================] - 3s 5ms/step - loss: 1.2000 - acc: 0.3000",
        [("loss", 1.2, 1000, 2), ("acc", 0.3, 1000, 2)],
    ),
    "a tensor": ("loss tensor(1.2000, device='npu:0', grad_fn=<DivBackward0>)", [("loss", 1.2, None, None)]),
    "a sentence": ("Loss at step 100: 0.5", [("loss", 0.5, 100, None)]),
    "tutorials": (
        "Epoch [2/10], Step [100/600], Loss: 0.5000\n[2,  2000] loss: 2.173\nloss: 2.303  [   64/60000]",
        [("loss", 0.5, 700, 2), ("loss", 2.173, 2000, 2), ("loss", 2.303, 64, None)],
    ),
    "timm": (
        "Train: 0 [  50/1251 (  4%)]  Loss: 6.900 (6.950)  Time: 0.4s,  300/s  LR: 1.0e-05  Data: 0.01 (0.02)",
        [("loss", 6.9, 50, 0), ("lr", 1e-5, 50, 0)],
    ),
    "Swin": (
        "(main.py 200): INFO Train: [1/300][10/1251]\teta 0:01:00 lr 0.000100\t time 0.3 (0.4)\tloss 6.9 (6.95)\t",
        [("loss", 6.9, 10, 1), ("lr", 1e-4, 10, 1)],
    ),
    "fairseq": (
        "2020 | INFO | train_inner | epoch 001:     10 / 500 loss=10.1, nll_loss=9.8, ppl=1000.5, num_updates=10",
        [("loss", 10.1, 10, 1), ("ppl", 1000.5, 10, 1)],
    ),
    "DeepSpeed": (
        "[2024-01-01 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-05], mom=[0.9]",
        [("lr", 1e-5, 10, None), ("skipped", 0, 10, None)],
    ),
    "a heading": ("Step 10:\n  loss: 0.7", [("loss", 0.7, 10, None)]),
    "Chinese": ("训练损失：0.5", [("训练损失", 0.5, None, None)]),
}
SETTINGS = """***** Running training *****
  Num examples = 1,000
  Num Epochs = 3
  Total train batch size (w. parallel, distributed & accumulation) = 64
  Gradient Accumulation steps = 1
  Total optimization steps = 500
  global_batch_size ............................... 128
Namespace(batch_size=32, epochs=14, seed=1)"""


@pytest.mark.parametrize("form", FORMATS)
def test_read_numbers_reads_format(form: str) -> None:
    text, expected = FORMATS[form]
    found = list(read_numbers(text.split("\n")))
    for name, value, step, epoch in expected:
        assert any(
            (one.name, one.step, one.epoch) == (name, step, epoch)
            and (one.value == pytest.approx(value) or math.isnan(one.value) is math.isnan(value) is True)
            for one in found
        ), (name, found)


def test_read_numbers_reads_settings_as_no_step() -> None:
    found = {one.name: (one.value, one.step, one.epoch) for one in read_numbers(SETTINGS.split("\n"))}
    assert found == {
        "num_examples": (1000, None, None),
        "num_epochs": (3, None, None),
        "total_train_batch_size": (64, None, None),
        "gradient_accumulation_steps": (1, None, None),
        "total_optimization_steps": (500, None, None),
        "global_batch_size": (128, None, None),
        "batch_size": (32, None, None),
        "epochs": (14, None, None),
        "seed": (1, None, None),
    }


def test_read_numbers_keeps_line_digit_total_and_doubt() -> None:
    lines = ["", "step 10/500 loss: 1.230", "{'loss': 2.0, 'epoch': 0.1}"]
    assert list(read_numbers(lines)) == [
        Printed(10, None, "loss", 1.23, 2, 1e-3, 500),
        Printed(None, 0.1, "loss", 2.0, 3, 0.1),
    ]
    bar = [" 2%|2 | 10/500 [00:05<04:00, 2.0it/s]", "{'loss': 2.0, 'epoch': 0.1}"]
    assert [(one.step, one.near) for one in read_numbers(bar)] == [(10, True)]


def test_times_sizes_and_versions_are_no_numbers() -> None:
    lines = ["took 3.2 s", "memory: 23.0GiB", "torch 2.13.0", "eta: 0:10:00", "[logging.py:96:log] x", "port 1234"]
    assert list(read_numbers(lines)) == []


def test_of_several_ranks_the_lowest_that_prints_counts() -> None:
    lines = [f"[rank{rank}]: step {step} loss: {step + rank / 10}" for step in range(3) for rank in (1, 0, 2)]
    assert [one.value for one in read_numbers(lines)] == [0.0, 1.0, 2.0]
    last = [f"[default7]: iteration {step}/ 3 | lm loss: {step}.0 |" for step in range(3)]
    assert [one.value for one in read_numbers(last)] == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("seed", range(20))
def test_read_numbers_raises_for_no_text(seed: int) -> None:
    draw = random.Random(seed)
    letters = "epochstelr:=[]{}()/,.|%'\"\t\r\n 0123456789-+einfna\x1bЖ损"
    for _ in range(50):
        lines = ["".join(draw.choice(letters) for _ in range(draw.randrange(150))) for _ in range(4)]
        list(read_numbers(lines))
    list(read_numbers([bytes(draw.randrange(256) for _ in range(4000)).decode("latin-1")]))
    for part in ("loss ", "1", "[", "{'a': ", "5%|", "a-", "epoch [1", "1,", "loss 1e", "\x1b["):
        list(read_numbers([part * 5000]))


def loss(step: int) -> float:
    return 2 + 8 * math.exp(-step / 20) + 0.02 * math.sin(7 * step)


def megatron(factor: float = 1.0, rate: float = 1e-4, digits: int = 6, noise: float = 0.0, first: int = 1) -> str:
    draw = random.Random(1)
    lines = []
    for step in range(first, first + STEPS):
        value = loss(step) * factor * (1 + draw.gauss(0, noise))
        lines.append(
            f" iteration {step:8d}/    5000 | consumed samples: {64 * step:12d} | learning rate: {rate:.6E} | "
            f"global batch size:    64 | lm loss: {value:.{digits}E} | loss scale: 1.0 | grad norm: 1.000 |"
        )
    return "\n".join(lines) + "\n"


def judge(tmp_path: Path, first: str | bytes, second: str | bytes) -> tuple[str, list[str], str]:
    """The answer, the findings' codes, and all that is said in words."""
    paths = tmp_path / "gpu.log", tmp_path / "npu.log"
    for path, content in zip(paths, (first, second), strict=True):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    result, _ = compare_logs(*paths)
    said = " ".join([result.data.reason, *result.data.notes, *(f"{one.message} {one.hint}" for one in result.findings)])
    return result.data.answer, [finding.code for finding in result.findings], said


@pytest.mark.parametrize("names", [("loss_d", "loss_g"), ("D loss", "G loss"), ("disc_loss", "gen_loss")])
def test_losses_of_opponents_are_undecided(tmp_path: Path, names: tuple[str, str]) -> None:
    draw = random.Random(3)
    sides = [
        "".join(f"step {n} {names[0]}: {draw.random():.4f} {names[1]}: {1 + draw.random():.4f}\n" for n in range(STEPS))
        for _ in range(2)
    ]
    answer, _, said = judge(tmp_path, *sides)
    assert answer == UNDECIDED
    assert "losses of opponents" in said


def test_a_rate_of_one_printed_digit_is_seen_to_be_doubled(tmp_path: Path) -> None:
    for name, rate in (("gpu.log", "1e-05"), ("npu.log", "2e-05")):
        lines = [f"{{'loss': {loss(n):.4f}, 'learning_rate': {rate}, 'epoch': {n / 50:.2f}}}" for n in range(STEPS)]
        (tmp_path / name).write_text("\n".join(lines))
    result, _ = compare_logs(tmp_path / "gpu.log", tmp_path / "npu.log")
    assert result.data.answer == UNDECIDED
    assert "learning_rate is 1e-05 in A and 2e-05 in B" in result.findings[0].message


def test_doubled_learning_rate_is_said_first_and_undecided(tmp_path: Path) -> None:
    answer, codes, said = judge(tmp_path, megatron(), megatron(factor=1.5, rate=2e-4))
    assert (answer, codes[0]) == (UNDECIDED, "TP383")
    assert "learning_rate is 0.0001 in A and 0.0002 in B, 2 times" in said


def test_other_batch_steps_or_seed_are_undecided(tmp_path: Path) -> None:
    for old, new in (("batch size:    64", "batch size:    32"), ("/    5000", "/    2000")):
        assert judge(tmp_path, megatron(), megatron().replace(old, new))[:2] == (UNDECIDED, ["TP383"])
    assert judge(tmp_path, "seed: 1\n" + megatron(), "seed: 2\n" + megatron())[:2] == (UNDECIDED, ["TP383"])


def test_loss_off_by_5_percent_is_outside(tmp_path: Path) -> None:
    answer, codes, said = judge(tmp_path, megatron(), megatron(factor=1.05))
    assert (answer, codes) == (OUTSIDE, ["TP382"])
    assert "lm_loss differs by 5 % in the mean of 60 pairs" in said and "from the first loss on" in said


def test_difference_that_sets_in_late_is_outside(tmp_path: Path) -> None:
    late = megatron().splitlines()[:50] + megatron(factor=1.08).splitlines()[50:]
    answer, codes, said = judge(tmp_path, megatron(), "\n".join(late))
    assert (answer, codes) == (OUTSIDE, ["TP382"])
    assert "last tenth" in said and "grows" in said and "The first losses agree" in said


def test_other_random_numbers_are_outside_and_said_to_look_so(tmp_path: Path) -> None:
    answer, _, said = judge(tmp_path, megatron(), megatron(noise=0.05))
    assert answer == OUTSIDE and "as often above A as below it" in said


def test_nan_in_one_log_is_outside_with_its_line(tmp_path: Path) -> None:
    lines = megatron().splitlines()
    lines[29:] = [f" iteration {step}/ 5000 | lm loss: nan |" for step in range(30, 61)]
    answer, codes, said = judge(tmp_path, megatron(), "\n".join(lines))
    assert (answer, codes[0]) == (OUTSIDE, "TP381")
    assert "lm_loss is nan in B at step 30 (line 30)" in said


def test_norm_that_a_scaler_skips_is_no_finding(tmp_path: Path) -> None:
    skipped = megatron().replace("grad norm: 1.000", "grad norm: inf", 1)
    assert judge(tmp_path, megatron(), skipped)[:2] == (WITHIN, [])


def test_missing_loss_column_is_undecided(tmp_path: Path) -> None:
    answer, codes, said = judge(tmp_path, megatron(), megatron().replace("lm loss: ", "perplexity: "))
    assert (answer, codes) == (UNDECIDED, [])
    assert "no loss is printed in B" in said


def test_logs_without_common_steps_are_undecided(tmp_path: Path) -> None:
    answer, _, said = judge(tmp_path, megatron(), megatron(first=1000))
    assert answer == UNDECIDED
    assert "lm_loss has no step in both: A has steps 1 to 60, B steps 1000 to 1059" in said


def test_few_pairs_are_undecided(tmp_path: Path) -> None:
    few = "\n".join(megatron().splitlines()[:9])
    answer, _, said = judge(tmp_path, few, few)
    assert answer == UNDECIDED and "9 pairs" in said


def test_too_few_printed_digits_are_undecided(tmp_path: Path) -> None:
    lines = [f"step {step} loss: 0.{3 + step % 2}" for step in range(STEPS)]
    answer, _, said = judge(tmp_path, "\n".join(lines), "\n".join(lines))
    assert answer == UNDECIDED and "too few digits" in said


@pytest.mark.parametrize("content", [b"", b"nothing is printed\n", bytes(range(256)) * 40, b"\x1f\x8b\x08 no gzip"])
def test_file_without_numbers_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(TorchportError):
        judge(tmp_path, megatron(), content)


def test_noise_of_bf16_is_within(tmp_path: Path) -> None:
    answer, codes, said = judge(tmp_path, megatron(), megatron(noise=1e-3))
    assert (answer, codes) == (WITHIN, [])
    assert "half precision need not" in said and "MindSpore Transformers" in said


def test_other_printed_digits_are_no_difference(tmp_path: Path) -> None:
    paths = tmp_path / "a.log", tmp_path / "b.log"
    for path, digits in zip(paths, (6, 2), strict=True):
        path.write_text(megatron(digits=digits))
    result, _ = compare_logs(*paths)
    assert result.data.answer == WITHIN
    assert next(row for row in result.data.rows if row.name == "lm_loss").mean == 0


def test_gpu_log_of_more_ranks_is_within(tmp_path: Path) -> None:
    ranks = [f"[rank{rank}]:{line}" for line in megatron().splitlines() for rank in (3, 0, 1)]
    assert judge(tmp_path, "\n".join(ranks), megatron())[:2] == (WITHIN, [])


def test_log_that_ends_early_is_compared_as_far_as_it_goes(tmp_path: Path) -> None:
    answer, _, said = judge(tmp_path, megatron(), "\n".join(megatron().splitlines()[:30]))
    assert answer == WITHIN and "30 numbers of A and 0 of B have no partner" in said


def test_screen_and_state_of_trainer_are_paired_by_epoch(tmp_path: Path) -> None:
    screen = "\n".join(
        f"{{'loss': {loss(n):.4f}, 'learning_rate': 5e-05, 'epoch': {n / 50:.2f}}}" for n in range(STEPS)
    )
    rows = [{"loss": loss(n), "learning_rate": 5e-5, "epoch": n / 50 + 1e-4, "step": 10 * n} for n in range(STEPS)]
    state = json.dumps({"log_history": rows}, indent=2, sort_keys=True)
    answer, _, said = judge(tmp_path, screen, state)
    assert answer == WITHIN and "by epoch" in said


def test_steps_that_begin_anew_in_each_epoch_are_told_apart(tmp_path: Path) -> None:
    log = "\n".join(f"epoch: {n // 20 + 1} step: {n % 20 + 1}, loss is {loss(n)}" for n in range(STEPS))
    other = "\n".join(
        f"epoch: {n // 20 + 1} step: {n % 20 + 1}, loss is {loss(n) * (1 + n // 40)}" for n in range(STEPS)
    )
    assert judge(tmp_path, log, log)[0] == WITHIN
    assert judge(tmp_path, log, other)[0] == OUTSIDE


def test_numbers_without_a_step_are_paired_by_order() -> None:
    sides = [collect_series(f"loss {loss(n):.4f}" for n in range(STEPS)) for _ in range(2)]
    paired = pair_series(*sides)
    assert [(one.by, len(one.pairs)) for one in paired] == [(ORDER, STEPS)]


def test_evaluation_loss_alone_may_be_outside(tmp_path: Path) -> None:
    logs = [
        megatron() + "\n".join(f"step {step}: val loss {2 * factor:.4f}" for step in (10, 20, 30, 40))
        for factor in (1.0, 1.1)
    ]
    assert judge(tmp_path, *logs)[:2] == (OUTSIDE, ["TP382"])


def test_command_answers_and_never_says_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpu, npu, off = tmp_path / "gpu.log.gz", tmp_path / "npu.log", tmp_path / "off.log"
    gpu.write_bytes(gzip.compress(megatron().encode()))
    npu.write_bytes(megatron(noise=1e-3).encode("utf-16"))
    off.write_text(megatron(factor=1.05))
    assert main(["compare", str(gpu), str(npu), "--csv", str(tmp_path / "pairs.csv")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("WITHIN THE RULE OF THUMB") and "A log does not show weights" in said
    assert "torchport run --record" in said and "holds" not in said
    assert len((tmp_path / "pairs.csv").read_text().splitlines()) > STEPS
    assert main(["compare", str(gpu), str(off)]) == 1
    assert capsys.readouterr().out.startswith("OUTSIDE OF THE RULE OF THUMB")
    few = tmp_path / "few.log"
    few.write_text("step 1 loss: 2.0\n")
    assert main(["compare", str(few), str(few)]) == 4
    capsys.readouterr()
    assert main(["compare", str(gpu), str(off), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)["data"]
    assert (data["answer"], data["rows"][0]["judged"]) == ("outside of it", "outside")


def test_command_refuses_options_and_files_without_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, empty = tmp_path / "a.log", tmp_path / "b.log"
    log.write_text(megatron())
    empty.write_text("")
    assert main(["compare", str(log), str(log), "--tolerance", "1e-3"]) == 2
    assert "of no use for two printed logs" in capsys.readouterr().err
    assert main(["compare", str(log), str(empty)]) == 2
    assert "has no printed numbers" in capsys.readouterr().err
