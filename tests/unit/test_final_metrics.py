"""What both runs print last, each number in its own unit: what is refused, then what passes."""

from __future__ import annotations

import math

import pytest
import recordings
from counting import grows_with

from torchport.compare.judge import compare_recordings
from torchport.compare.metrics import compare_metrics
from torchport.compare.printed import printed_metrics
from torchport.results.comparison import MetricRow

POINTS = 0.5


def one(reference: str, port: str, relative: float | None, points: float = POINTS) -> MetricRow:
    """The only row."""
    (row,) = compare_metrics(reference, port, points, relative)
    return row


REFUSED = [
    # shares, where the losses agree closely
    ("count", "Accuracy: 9513/10000 (95%)", "Accuracy: 9543/10000 (95%)", 1e-6),
    ("count", "Accuracy: 9513/10000 (95%)", "Accuracy: 9511/10000 (95%)", 1e-6),
    ("count", "Accuracy: 9513/10000 (95%)", "Accuracy: 9564/10000 (96%)", 1e-2),
    ("fraction", "acc 0.972", "acc 0.969", 1e-6),
    ("fraction", "acc 0.972", "acc 0.966", 1e-2),
    ("fraction", "acc 0.9", "acc 0.8", 1e-2),
    ("percent", "test accuracy 97.20 %", "test accuracy 97.18 %", 1e-6),
    ("percent", "test accuracy 97.20 %", "test accuracy 96.69%", 1.0),
    ("percent", "test_acc=97.20", "test_acc=97.10", 1e-3),
    ("percent", "Epoch 3: top1 97.2", "Epoch 3: top1 97.0", 1e-4),
    ("percent", "word error rate: 12.50 %", "word error rate: 12.60 %", 1e-4),
    ("fraction", "WER 0.1250", "WER 0.1260", 1e-4),
    # 2 of 360 samples: their number shows in what was printed before
    ("fraction", "acc 0.9305555555555556\nacc 0.9722222222222222", "acc 0.9666666666666667", 1e-4),
    # shares of runs that are not comparable at their end
    ("percent", "acc 97.2 %", "acc 96.6 %", None),
    # losses
    ("loss", "val_loss: 1.234e-02", "val_loss: 1.236e-02", 1e-4),
    ("loss", "val_loss: 1.234e-02", "val_loss: 1.250e-02", 1e-2),
    ("loss", "loss 0.50000", "loss 0.50007", 1e-4),
    ("loss", "loss 2.0", "loss 2.2", 1e-2),
    ("loss", "PSNR 31.25 dB", "PSNR 31.30 dB", 1e-4),
    # exp of a loss
    ("perplexity", "| ppl 123.45", "| ppl 124.68", 1e-4),
    ("perplexity", "perplexity: 123.45", "perplexity: 130.00", 1e-2),
    ("perplexity", "ppl 1.0100", "ppl 1.0103", 1e-2),
    # what is no number
    ("loss", "loss 0.5", "loss nan", 1.0),
    ("loss", "loss inf", "loss 0.5", 1.0),
    ("loss", "loss inf", "loss -inf", 1.0),
    ("loss", "loss 0.5", "loss nan", None),
    ("perplexity", "ppl inf", "ppl 3.0", 1.0),
    ("fraction", "acc 0.5", "acc nan", 1.0),
    # of another number of samples
    ("count", "accuracy: 5000/10000", "accuracy: 500/1000", 1.0),
]


@pytest.mark.parametrize(("unit", "reference", "port", "relative"), REFUSED)
def test_refused(unit, reference, port, relative):
    row = one(reference, port, relative)
    assert row.unit == unit
    assert not row.holds
    assert not one(port, reference, relative).holds


PASSES = [
    ("count", "Accuracy: 9513/10000 (95%)", "Accuracy: 9512/10000 (95%)", 1e-9),  # a sample
    ("count", "accuracy 17/36", "accuracy 18/36", 1e-9),
    ("count", "Accuracy: 9513/10000 (95%)", "Accuracy: 9558/10000 (96%)", 1e-2),
    ("fraction", "acc 0.972", "acc 0.971", 1e-6),  # a digit
    ("fraction", "acc 0.9720", "acc 0.9675", 1e-2),
    ("fraction", "accuracy 0.9722222222222222", "accuracy 0.9694444444444444", 1e-6),  # one of 360
    ("fraction", "accuracy 0.9722222089767456", "accuracy 0.9694444537162781", 1e-6),  # the same in float32
    ("percent", "test accuracy 97.20 %", "test accuracy 97.19 %", 1e-6),
    ("percent", "test accuracy 97.50 %", "test accuracy 97.10 %", 1.0),
    ("percent", "accuracy: 95%", "accuracy: 96%", 1e-6),
    ("percent", "acc 97.2 %", "acc 96.8 %", None),
    ("loss", "val_loss: 1.234e-02", "val_loss: 1.235e-02", 1e-9),  # each is rounded by half a digit
    ("loss", "loss 0.5000", "loss 0.5049", 1e-2),
    ("loss", "loss 0.5", "loss 0.9", None),  # not judged
    ("loss", "loss 8.0\nloss 1.10000e-06", "loss 8.0\nloss 1.20000e-06", 1e-2),  # small beside the first
    ("perplexity", "| ppl 123.45", "| ppl 123.50", 1e-4),
    ("perplexity", "| ppl 123.45", "| ppl 128.00", 1e-2),
    ("perplexity", "ppl 1.0100", "ppl 1.0101", 1e-2),
    ("loss", "loss nan", "loss nan", 1e-6),
    ("loss", "loss -inf", "loss -inf", 1e-6),
    ("perplexity", "ppl inf", "ppl inf", 1e-6),
]


@pytest.mark.parametrize(("unit", "reference", "port", "relative"), PASSES)
def test_passes(unit, reference, port, relative):
    row = one(reference, port, relative)
    assert row.unit == unit
    assert row.holds
    assert one(port, reference, relative).holds


def test_what_is_allowed_of_a_share_follows_the_losses():
    allowed = [
        one("Accuracy: 9513/10000", "Accuracy: 9513/10000", relative).allowed
        for relative in (None, 1.0, 1e-2, 5e-3, 1e-3, 1e-6, 0.0)
    ]
    assert allowed == pytest.approx([0.5, 0.5, 0.5, 0.25, 0.05, 0.01, 0.01])


def test_what_is_allowed_of_a_perplexity_is_what_is_allowed_of_its_logarithm():
    row = one("ppl 54.598150", "ppl 54.598150", 1e-3)
    assert math.log(54.598150 + row.allowed) == pytest.approx(4.0 * 1.001, abs=1e-6)


def test_rows_have_what_reports_show():
    rows = compare_metrics("acc: 3/4 loss: 0.5", "acc: 3/4 loss: 0.5", POINTS, 1e-2)
    assert [(row.name, row.reference, row.port, row.percent, row.total) for row in rows] == [
        ("acc", 75.0, 75.0, True, 4),
        ("loss", 0.5, 0.5, False, None),
    ]


@pytest.mark.parametrize(
    ("port", "words"),
    [
        ("acc: 40/50", "the last acc is one of 50 samples, the original's of 100 samples"),
        ("acc: 0.8", "the last acc is one of no samples, the original's of 100 samples"),
        ("acc: 78/100", "the last acc differs: 78 % against 80 %, where 1 is allowed"),
    ],
)
def test_what_is_said_of_one_that_differs(tmp_path, port, words):
    outputs = {"original": "acc: 80/100", "port": port}
    runs = []
    for name, output in outputs.items():
        (tmp_path / name).mkdir()
        runs.append(recordings.write(tmp_path / name, recordings.losses([1.0] * 20), output=output))
    (finding,) = [finding for finding in compare_recordings(*runs).findings if finding.code == "TP306"]
    assert finding.message == words


def test_metrics_that_one_side_alone_prints_are_no_rows():
    assert compare_metrics("acc 0.5", "loss 0.5", POINTS, 1e-2) == []


LINES = [
    ("Accuracy: 9513/10000 (95%)", {"accuracy": 95.13}),
    ("Test set: Average loss: 0.0321, Accuracy: 9890/10000 (99%)", {"average loss": 0.0321, "accuracy": 98.9}),
    ("acc 0.972", {"acc": 0.972}),
    ("test_acc=97.20", {"test acc": 97.2}),
    ("| epoch 3 | ppl 123.45", {"ppl": 123.45}),
    ("val_loss: 1.234e-02", {"val loss": 0.01234}),
    ("Epoch 3: loss=0.123, top1 97.2", {"loss": 0.123, "top1": 97.2}),
    (
        "Epoch: [0][10/79] Time 0.1 (0.2) Loss 6.9e+00 (7.0e+00) Acc@1 1.56 (  0.43)",
        {"loss": 6.9, "loss (average)": 7.0, "acc@1": 1.56, "acc@1 (average)": 0.43},
    ),
    ("\r 10% loss 0.9\r 20% loss 0.8", {"loss": 0.8}),
    ("\x1b[32mtest loss\x1b[0m: \x1b[1;31m0.25\x1b[0m", {"test loss": 0.25}),
    ("{'eval_loss': 0.25, 'eval_accuracy': 0.9, 'eval_runtime': 3.2}", {"eval loss": 0.25, "eval accuracy": 0.9}),
    ('{"val": {"mIoU": 0.41}}', {"miou": 0.41}),
    ("loss tensor(0.5000, device='npu:0', grad_fn=<NllLossBackward0>)", {"loss": 0.5}),
    ("train/loss 0.5 loss/train 0.25", {"train loss": 0.5, "loss train": 0.25}),
    ("Loss_D: 0.58 Loss_G: 3.0 D(x): 0.8", {"loss d": 0.58, "loss g": 3.0}),
    ("generator loss 0.5, discriminator loss 0.25", {"generator loss": 0.5, "discriminator loss": 0.25}),
    ("Accuracy of the network on the 10000 test images: 55 %", {"accuracy of the network on the test images": 55.0}),
    ("The test accuracy is 0.97", {"test accuracy": 0.97}),
    ("│ test_acc │ 0.97 │", {"test acc": 0.97}),
    ("F1: 0.8 F1-score: 0.7 auc .5", {"f1": 0.8, "f1 score": 0.7, "auc": 0.5}),
    ("train ppl 1,234.5", {"train ppl": 1234.5}),
    ("[rank1] loss 0.5\n[rank0] loss 0.25", {"rank 1 loss": 0.5, "rank 0 loss": 0.25}),
    # what is not a metric of the model
    ("took 3.1 s, 812 images/s", {}),
    ("loss_scale 65536, loss time: 3.1 s, validation_loss_seconds=3", {}),
    ("eval loss computed in: 3.2 s; error 3.2 ms", {}),
    ("Epoch loss acc\n1 0.5 0.9", {}),
    ("glossary 3, maps 4, terror 5", {}),
]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_reading(line, expected):
    found = {name: values[-1].value for name, values in printed_metrics(line).items()}
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "digit"),
    [("acc 0.972", 1e-3), ("acc 97.2 %", 0.1), ("loss 1.234e-02", 1e-5), ("loss 3", 1.0), ("loss 1.5E+3", 100.0)],
)
def test_the_unit_of_the_last_digit(text, digit):
    ((number,),) = printed_metrics(text).values()
    assert number.digit == pytest.approx(digit)


@pytest.mark.parametrize(
    "piece",
    ["loss_", "test ", "accuracy of ", "Epoch 3 step 17: loss 0.5 (0.6) acc 97.2 (97.1) 3.4 it/s\n", "loss 0.5 "],
)
def test_the_work_for_much_output_grows_with_its_length(piece):
    assert grows_with(lambda: printed_metrics(piece * 250), lambda: printed_metrics(piece * 1000), 4)


def test_long_lines_end():
    """The searches in them, which are not counted: the square of this length takes longer than pytest's `timeout`."""
    for piece, count in (("loss_", 200_000), ("test ", 200_000), ("accuracy of ", 50_000)):
        assert printed_metrics(piece * count) == {}


@pytest.mark.parametrize("line", ["loss: 0", "accuracy 0/0", "loss 0.0", "acc: 0 %"])
def test_nothing_is_a_number_too(line):
    (row,) = compare_metrics(line, line, 0.5, 1e-4)
    assert row.holds
    assert row.reference == 0
