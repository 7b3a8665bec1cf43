"""The numbers that a training printed, by name and step, from the lines of its log.

How steps are assigned:

- `step` is the one that the line prints. A step that counts within an epoch (`Epoch [2][50/500]`, a progress bar of an
  epoch) is made one of the whole run if the line prints the epoch's length: 550 here. Without the length it stays as
  printed, and `epoch` tells the epochs apart (MindSpore: `epoch: 2 step: 10`).
- Samples count as steps if that is all the line has (`Train Epoch: 1 [640/60000 (1%)]`).
- The dicts of Hugging Face's Trainer have no step on screen. They get the one of the progress bar above them, which may
  be a few steps old: `near` is true, `epoch` is exact.
- A line that has an epoch or a step and nothing else ("Epoch 1/10") is a heading: the lines under it get its epoch or
  step until the next one.
- Otherwise `step` and `epoch` are None, and the order of the lines is all there is.

Names are in lower case with `_` between their words: `lm loss`, `train/loss` and `Acc@1` are "lm_loss", "train_loss"
and "acc@1". A line of an evaluation puts its word in front: `Test: [10/100] Loss 6.9` is "test_loss". The number in
parentheses behind another one is a running average: "loss_average". `9810/10000` is a percentage.

If lines name a rank ("[rank1]: ..."), rank 0 counts, or the lowest rank that prints the name; the numbers come in
order per name. Nothing is raised for any text, and the memory in use does not grow with it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator

from torchport.logs.scanning import Place, Scanner

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|[\x00-\x08\x0b\x0c\x0e-\x1f]"
)
# Prefixes of torchrun, mpirun --tag-output and DeepSpeed. The one of `srun -l` ("10: ") may as well be a step.
_RANK = re.compile(
    r"^\s*\[(?:rank|default|worker)\s?(\d{1,6})\]\s?:|^\[\d{1,6},(\d{1,6})\]<std\w{1,6}>:|\[[Rr]ank[ _]?(\d{1,6})\]|"
    r"^\s*[Rr]ank[ :]?(\d{1,6})\s?[\]:|>,]"
)
_LONGEST = 1 << 20  # characters of a line that are read
_WAITING = 64  # numbers of one name that are held back until it is known which rank prints them


@dataclasses.dataclass(frozen=True, slots=True)
class Printed:
    """One printed number. NaN and infinities are kept.

    `line` counts from 1. `digit` is the unit of the last printed digit: 1e-4 for 1.2345, 0 for NaN. `total` is the
    number of steps that the line prints beside its own ("10/500"). `near`: the step is of a progress bar above.
    """

    step: int | None
    epoch: float | None
    name: str
    value: float
    line: int
    digit: float = 0.0
    total: int | None = None
    near: bool = False


def read_numbers(lines: Iterable[str]) -> Iterator[Printed]:
    """The numbers that have a name, in order (see above), in any of the formats that `scanning` and `tables` know."""
    scanner, ranks, number = Scanner(), _Ranks(), 0
    for number, whole in enumerate(lines, 1):
        for text in whole[:_LONGEST].rstrip("\n").split("\r"):
            text = _ESCAPE.sub("", text)
            rank, text = _split_rank(text)
            for place, name, value, digit in scanner.scan(text):
                yield from ranks.choose(rank, _printed(place, name, value, digit, number))
    for place, name, value, digit in scanner.finish():
        yield from ranks.choose(None, _printed(place, name, value, digit, number))
    yield from ranks.finish()


def _printed(place: Place, name: str, value: float, digit: float, line: int) -> Printed:
    return Printed(place.step, place.epoch, name, value, line, digit, place.total, place.near)


def _split_rank(text: str) -> tuple[int | None, str]:
    """The rank that a line names, and the line without it."""
    match = _RANK.search(text[:200])
    if match is None:
        return None, text
    return int(next(group for group in match.groups() if group)), text[: match.start()] + " " + text[match.end() :]


class _Ranks:
    """Chooses for each name the rank whose numbers count."""

    def __init__(self) -> None:
        self.owner: dict[str, int] = {}
        self.waiting: dict[str, list[tuple[int, Printed]]] = {}

    def choose(self, rank: int | None, printed: Printed) -> Iterator[Printed]:
        """The numbers that are known to count now."""
        name = printed.name
        if rank is None:
            yield printed
        elif rank == 0 and name not in self.owner:
            self.owner[name] = 0
            self.waiting.pop(name, None)
            yield printed
        elif name in self.owner:
            if self.owner[name] == rank:
                yield printed
        else:
            held = self.waiting.setdefault(name, [])
            held.append((rank, printed))
            if len(held) >= _WAITING:
                yield from self._settle(name)

    def finish(self) -> Iterator[Printed]:
        """The numbers that are still held back at the end."""
        for name in list(self.waiting):
            yield from self._settle(name)

    def _settle(self, name: str) -> Iterator[Printed]:
        held = self.waiting.pop(name)
        self.owner[name] = lowest = min(rank for rank, _ in held)
        yield from (printed for rank, printed in held if rank == lowest)
