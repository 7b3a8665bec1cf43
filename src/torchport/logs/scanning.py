"""One line of a log after the other: its place in the run, and the numbers that it names.

The forms were read in the sources that print them: transformers `trainer_callback.py` (`PrinterCallback`,
`ProgressCallback`), Megatron-LM `training.py` (`training_log`), mmengine `log_processor.py`, mmcv 1.x `text.py`,
nanoGPT `train.py`, pytorch/examples `mnist` and `imagenet`, torchtitan `metrics.py`, MindSpore `_loss_monitor.py`,
ms-swift `logging.jsonl`, LLaMA-Factory `trainer_log.jsonl`, Ultralytics `trainer.py`, Keras, timm, fairseq.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from torchport.logs.places import Found, find_place, mode_of
from torchport.logs.tables import Row, Tables, numbers_of
from torchport.logs.values import Value, find_quoted, find_values, join_name, parse_value

# Keys of dicts that are the place and no value, the best first.
_STEPS = (
    "step", "global_step", "current_steps", "iter", "iteration", "train_step", "steps", "_step", "trainer_global_step",
)  # fmt: skip
_EPOCHS = ("epoch", "train_epoch", "current_epoch")
_TOTALS = ("total_steps", "max_steps", "max_iters")
_PAIRED = re.compile(r"(\d{1,12})\s?/\s?(\d{1,12})")
_SOME = re.compile(r"\d|\b(?:nan|inf)\b", re.IGNORECASE)
_FLAT = re.compile(r"\{[^{}]{0,20000}\}")
_DICT = re.compile(r"['\"]\s{0,3}:")
_EMPTY = re.compile(r"[\W_]*")


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a number was printed (`reading.Printed` explains the fields)."""

    step: int | None = None
    epoch: float | None = None
    total: int | None = None
    near: bool = False


Named = tuple[Place, str, float, float]


class Scanner:
    """Reads lines, and keeps what lines below need of those above: a heading, a progress bar, the head of a table."""

    def __init__(self) -> None:
        self._tables = Tables()
        self._base: int | None = None  # number of the first epoch: 0 or 1
        self._heading = Place()
        self._bar: tuple[int, int] | None = None

    def scan(self, text: str) -> Iterator[Named]:
        """The numbers of one line."""
        row = self._tables.read(text)
        if row is not None:
            yield from self._of_row(row)
            return
        if not _SOME.search(text):
            return
        if "{" in text and _DICT.search(text):
            yield from self._of_dicts(text)
            return
        found = find_place(text)
        values = list(find_values(found.rest))
        mode = found.mode or mode_of(text)
        if not values:
            self._note(found)
            return
        place = self._place(found)
        if found.epochs:
            yield place, "total_epochs", float(found.epochs), 1.0
        for name, value, digit in values:
            yield place, _with_mode(mode, name), value, digit

    def finish(self) -> Iterator[Named]:
        """The numbers of an object that the end of the log cuts off."""
        yield from self._of_row(self._tables.finish())

    def _of_dicts(self, text: str) -> Iterator[Named]:
        flat = list(_FLAT.finditer(text))
        if not flat:  # one that is cut off, or very long
            yield from self._of_row(dict(find_quoted(text)))
        outer = text if len(flat) == 1 else ""
        for match in flat:
            yield from self._of_row(dict(find_quoted(match.group())), _FLAT.sub(" ", outer))

    def _of_row(self, row: Row, around: str = "") -> Iterator[Named]:
        """A dict or a row of a table. A progress bar may stand `around` it in the same line."""
        if not row:
            return
        found = find_place(around) if around and _SOME.search(around) else None
        if found and found.bar:
            self._note(found)
        place = self._place_of_row(row, found)
        for name, value, digit in _values_of_row(row):
            yield place, name, value, digit

    def _place_of_row(self, row: Row, found: Found | None) -> Place:
        keys = {join_name(key): text for key, text in row.items()}
        step = total = None
        for key, text in keys.items():
            if "step" in key and (match := _PAIRED.fullmatch(text)):  # ms-swift: "global_step/max_steps": "10/500"
                step, total = int(match[1]), int(match[2])
        step = _first(keys, _STEPS) if step is None else step
        total = total or next((_whole(keys[key]) for key in _TOTALS if key in keys), None)
        epoch = next((value[0] for key in _EPOCHS if key in keys and (value := parse_value(keys[key]))), None)
        if step is None and found and not found.bar and found.step is not None:
            return self._place(found)
        if step is None and epoch is not None and self._bar and "total_epochs" not in keys:
            return Place(self._bar[0], epoch, self._bar[1], near=True)
        if step is None and epoch is None:
            return self._heading
        if epoch is None and found and found.epoch is not None:
            epoch = found.epoch
        return Place(step, epoch, total)

    def _note(self, found: Found) -> None:
        """A line without values: a heading, or a progress bar by itself."""
        if found.bar and found.epoch is None:
            if found.mode == "" and found.step is not None and (self._bar is None or found.total >= self._bar[1]):  # type: ignore[operator]
                self._bar = (found.step, found.total or 0)
            return
        if (found.step is None and found.epoch is None) or not _EMPTY.fullmatch(found.rest):
            return
        self._heading = self._place(found)

    def _place(self, found: Found) -> Place:
        epoch = found.epoch if found.epoch is not None else None
        if found.step is None and epoch is None:
            return self._heading
        if epoch is None and (found.within or self._heading.step is None):
            epoch = self._heading.epoch
        if epoch is not None and self._base is None:
            self._base = min(1, int(epoch))
        step, total = found.step, found.total
        if step is not None and found.within and total and epoch is not None and step <= total:
            step += (int(epoch) - (self._base or 0)) * total
            total = total * found.epochs if found.epochs else None
        return Place(step, epoch, total)


def _values_of_row(row: Row) -> Iterator[Value]:
    for name, value, digit in numbers_of(row):
        if name not in _STEPS and name not in _EPOCHS:
            yield name, value, digit


def _first(keys: Row, names: tuple[str, ...]) -> int | None:
    return next((whole for name in names if name in keys and (whole := _whole(keys[name])) is not None), None)


def _whole(text: str) -> int | None:
    value = parse_value(text)
    return int(value[0]) if value and value[0] == value[0] and abs(value[0]) < 1e15 else None


def _with_mode(mode: str, name: str) -> str:
    """`loss` of a line of an evaluation as "val_loss"."""
    if mode in ("", "train") or name.split("_")[0] in ("val", "test", "eval", "valid", "validation", "evaluation"):
        return name
    return f"{mode}_{name}"
