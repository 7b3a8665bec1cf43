"""Whether a training that ends without an exception is sick, by the numbers that it prints: `sickness.toml`.

Each rule looks at the last numbers of a name, for what lasts until the end of the log: a scaler's first skipped steps,
a GAN's ups and downs or one bad batch are none.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
import statistics
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources

from torchport.logs import Printed, read_numbers

LOSSES = 2  # in a row, up to the end, that are not finite, or all that there are
NORMS = 10  # of gradients: a scaler that begins at 65,536 may skip that many steps
BESIDE = 3  # of them, beside losses of exactly 0.0, which trainers print for a loss that is not a number
ZEROS = 4  # losses of exactly 0.0 in a row
CONSTANT = 10  # losses in a row, all that there are
STILL = 1e-4  # relative range of a loss that does not change
HALVINGS = 8  # of a loss scale, one after the other
LOW, FLOOR = 1024.0, 1.0  # of a loss scale
SKIPPED = 8  # steps in a row
SLOWER = 4.0  # times, between the first and the last tenth
BEGUN = 1.2  # times, between the first tenth and the middle
TIMED = 12  # numbers
_LOSS = re.compile(r"(?:^|_)(?:loss|nll|ppl|perplexity)(?:$|_)|loss$|^(?:box|obj|cls|dfl|giou)$")
_TOTAL = {"loss", "lm_loss", "train_loss", "total_loss", "training_loss"}
_NORM = re.compile(r"grad(?:ient)?_?norm|gnorm")
_SCALE = re.compile(r"(?:loss|grad|amp)_?scale$|^scale$")
_SKIPS = re.compile(r"skipped_iterations$|skipped_steps$|overflow$")
_RATE = re.compile(
    r"(?:samples|tokens|images?|iters?|it|steps)_?(?:/|per)_?s(?:ec|econd)?|throughput|tgs|tokens_per_second"
)
_TIME = re.compile(
    r"(?:elapsed_time_per_iteration|(?:step|iter|iteration|batch)_time|time_per_step|sec(?:ond)?s?/(?:it|step|batch)|s/it)"
)
# An evaluation's numbers are of classes and sets that may be empty; an average still has the first ones in it.
_ASIDE = re.compile(r"val|eval|test|average|_avg|aux|balance|regular|reg_|kl|clip|policy|actor|critic|value")
# Trainings whose loss says nothing about learning: policy gradients begin at 0, and stay near it.
_BY_REWARD = re.compile(r"reward|advantage|return|entropy|kl")
_LEARNING_RATE = re.compile(r"^(?:lr|learning_rate)(?:$|_)|(?:^|_)lr$")
_BAR = re.compile(r"(?<!\d)(\d{1,9})/(\d{1,9}) \[[^\]]{0,40}?, {1,3}([\d.]{1,9}) ?(s/it|it/s)")
_OVERFLOW = re.compile(r"OVERFLOW!|Skipping step|Gradient overflow|grad(?:ient)? overflow", re.IGNORECASE)
_TO_SCALE = re.compile(
    r"(?:reducing|reduced|scale (?:is )?(?:now|to)|loss scale (?:to|reduced to)) (?:loss scale )?(?:to )?"
    r"([\d.]+(?:e[+-]?\d+)?)",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Sign:
    """One sign: its name in `sickness.toml`, the facts in words, and the number of the line in which it begins."""

    name: str
    facts: str
    line: int

    @property
    def cause(self) -> str:
        """The sentence of the table with the facts in it."""
        return load_sickness()[self.name]["cause"].format(self.facts)


@functools.cache
def load_sickness() -> Mapping[str, Mapping[str, str]]:
    """All signs by name. Raises ValueError for one that breaks the schema in `sickness.toml`."""
    text = resources.files("torchport.knowledge").joinpath("sickness.toml").read_text("utf-8")
    rows: dict[str, dict[str, str]] = tomllib.loads(text)
    for name, row in rows.items():
        if set(row) != {"cause", "fix", "next", "source"}:
            raise ValueError(f"sickness.toml: {name} has keys {sorted(row)}")
    return rows


def find_signs(lines: Mapping[int, str]) -> list[Sign]:
    """The signs in lines of a log, which are given by their numbers, in order; the worst first."""
    numbers = list(lines)
    series: dict[str, list[Printed]] = {}
    for printed in read_numbers(lines.values()):
        if printed.line:
            printed = dataclasses.replace(printed, line=numbers[printed.line - 1])
            series.setdefault(printed.name, []).append(printed)
    for name, values in _read_bars(lines).items():
        series.setdefault(name, values)
    return find_signs_in(series) or list(_overflows(lines))


def _read_bars(lines: Mapping[int, str]) -> dict[str, list[Printed]]:
    """The seconds of an iteration that progress bars print, of the bar with most states."""
    bars: dict[int, list[Printed]] = {}
    for number, line in lines.items():
        for done, total, pace, unit in _BAR.findall(line):
            seconds = float(pace) if unit == "s/it" else 1 / max(float(pace), 1e-9)
            bars.setdefault(int(total), []).append(Printed(int(done), None, "s/it", seconds, number))
    return {"s/it": max(bars.values(), key=len)} if bars else {}


def find_signs_in(series: Mapping[str, Sequence[Printed]]) -> list[Sign]:
    """The signs in numbers, which are given by their names; the worst first."""
    return [sign for rule in (_not_finite, _scale, _zero, _constant, _skipped, _slows) for sign in rule(series)][:3]


_Series = Mapping[str, Sequence[Printed]]


def _not_finite(series: _Series) -> Iterator[Sign]:
    zeros = any(_run_at_end(values, lambda value: value == 0.0) for _, values in _named(series, _LOSS))
    for pattern, lasts in ((_LOSS, LOSSES), (_NORM, BESIDE if zeros else NORMS)):
        for name, values in _named(series, pattern):
            run = _run_at_end(values, lambda value: not math.isfinite(value))
            if len(run) >= lasts or (run and len(run) == len(values) and lasts == LOSSES):
                facts = f"{name} is {run[0].value} from {_when(run[0], values)} to the end of the log"
                yield Sign("not-finite", facts, run[0].line)
                return  # others are the same sickness


def _zero(series: _Series) -> Iterator[Sign]:
    if any(_BY_REWARD.search(name) for name in series):
        return
    losses = _named(series, _LOSS)
    if any(one.value for _, values in losses for one in values[-ZEROS:]):
        return  # a part of it may be 0.0: a penalty, a term that is switched off
    for name, values in losses:
        run = _run_at_end(values, lambda value: value == 0.0)
        if len(run) >= ZEROS and not _fell_to_zero(values, len(run)):
            yield Sign("zero-loss", f"{name} from {_when(run[0], values)} to the end of the log", run[0].line)
            return


def _fell_to_zero(values: Sequence[Printed], zeros: int) -> bool:
    """Whether a loss came to 0.0 by becoming smaller and smaller than its printed digits."""
    before = [one for one in values[:-zeros] if math.isfinite(one.value)]
    return bool(before) and abs(before[-1].value) <= 30 * before[-1].digit


def _constant(series: _Series) -> Iterator[Sign]:
    if any(_BY_REWARD.search(name) for name in series):
        return
    rates = next((values for name, values in series.items() if _LEARNING_RATE.search(name)), [])
    warm = len(rates) >= CONSTANT and 0.0 < sum(one.value == 0.0 for one in rates) / len(rates) < 1.0
    losses = _named(series, _LOSS)
    if any(len({one.value for one in values}) > 2 for _, values in losses):
        return
    for name, values in losses:
        finite = [one.value for one in values]
        if len(finite) < CONSTANT or not all(map(math.isfinite, finite)) or not any(finite):
            continue
        spread = max(finite) - min(finite)
        if spread <= STILL * abs(finite[0]) and spread <= 2 * max(one.digit for one in values) and not warm:
            zero = ", and the learning rate is 0.0" if rates and not any(one.value for one in rates) else ""
            yield Sign(
                "constant-loss",
                f"{name} is {finite[0]:g} in all {len(finite)} lines that have it{zero}",
                values[0].line,
            )
            return


def _scale(series: _Series) -> Iterator[Sign]:
    """A scale that falls to the end of the log, or to its floor. GradScaler begins at 65,536, others far above it."""
    for name, values in _named(series, _SCALE):
        run = _run_at_end(values, lambda value: value >= 0)
        while len(run) > 1 and (rise := next((at for at in range(1, len(run)) if _rises(run, at)), 0)):
            run = run[rise:]
        falls = [at for at in range(1, len(run)) if run[at].value < run[at - 1].value]
        if not falls:
            continue
        first, last = run[0].value, run[-1].value
        goes_on = len(run) - 1 - falls[-1] <= len(falls) // HALVINGS and last < LOW and len(falls) >= HALVINGS
        if goes_on or (last <= FLOOR and len(falls) >= 3):
            facts = f"{name} goes from {first:g} to {last:g}, {len(falls)} times in a row"
            yield Sign("scale-falls", facts, run[0].line)
            return


def _rises(run: Sequence[Printed], at: int) -> bool:
    return run[at].value > run[at - 1].value


def _skipped(series: _Series) -> Iterator[Sign]:
    """Counts of skipped steps that are 1 in each line, or that grow from line to line."""
    for name, values in _named(series, _SKIPS):
        run = _run_at_end(values, lambda value: value >= 1)
        grows = all(after.value > before.value for before, after in itertools.pairwise(run))
        if len(run) >= SKIPPED and (grows or all(one.value == run[0].value for one in run)):
            yield Sign("steps-skipped", f"{name} in {len(run)} lines up to the end of the log", run[0].line)
            return


def _overflows(lines: Mapping[int, str]) -> Iterator[Sign]:
    """Lines that tell of an overflow and of the next scale, DeepSpeed's and apex's, and hardly a step behind them."""
    told = [(number, line) for number, line in lines.items() if _OVERFLOW.search(line)]
    scales = [float(match.group(1)) for _, line in told if (match := _TO_SCALE.search(line))][-SKIPPED:]
    if len(scales) < SKIPPED or not all(after <= before for before, after in itertools.pairwise(scales)):
        return
    behind = sum(number > told[-1][0] for number in lines)
    if scales[0] > scales[-1] and behind <= len(told):
        yield Sign(
            "scale-falls", f"{len(told)} steps were skipped, and the scale went down to {scales[-1]:g}", told[0][0]
        )


def _slows(series: _Series) -> Iterator[Sign]:
    for pattern, is_rate in ((_RATE, True), (_TIME, False)):
        for name, values in _named(series, pattern):
            good = [one.value for one in values if math.isfinite(one.value) and one.value > 0]
            part = max(len(good) // 10, 3)
            if len(good) < TIMED:
                continue
            first, last = statistics.median(good[:part]), statistics.median(good[-part:])
            middle = statistics.median(good[part:-part])
            times, halfway = (first / last, first / middle) if is_rate else (last / first, middle / first)
            if times >= SLOWER and halfway > BEGUN:
                yield Sign(
                    "slows-down", f"{name} goes from {first:g} to {last:g}, {times:.1f} times slower", values[0].line
                )
                return


def _named(series: _Series, pattern: re.Pattern[str]) -> list[tuple[str, Sequence[Printed]]]:
    """The series of this kind that are of the training itself; if there is a total loss, it speaks for its parts."""
    found = [(name, values) for name, values in series.items() if pattern.search(name) and not _ASIDE.search(name)]
    return [pair for pair in found if pair[0] in _TOTAL] or found


def _run_at_end(values: Sequence[Printed], holds: Callable[[float], bool]) -> list[Printed]:
    """The last values for which it holds, up to the end."""
    run = []
    for one in reversed(values):
        if not holds(one.value):
            break
        run.append(one)
    return run[::-1]


def _when(one: Printed, values: Sequence[Printed]) -> str:
    if one is values[0]:
        return "the first line that has it"
    if one.step is not None:
        return f"step {one.step}"
    return f"epoch {one.epoch:g}" if one.epoch is not None else f"line {one.line}"
