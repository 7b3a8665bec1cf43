"""Two printed logs of one training: are their losses as near as ports are accepted with?

The rule of thumb is one for losses that were printed, and this is all it judges. It never says that a port holds: a log
shows neither weights nor gradients nor data. `compare.printed` reads metrics out of a recording's output; here nothing
was recorded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchport.compare.printed_settings import differing_settings
from torchport.compare.tolerance import TOLERANCES
from torchport.errors import TorchportError
from torchport.findings import Finding, Location, Result, Safety, Severity
from torchport.logs.differences import Difference, is_finite, measure, relative_errors
from torchport.logs.opening import hash_file, read_lines
from torchport.logs.pairing import EPOCH, ORDER, STEP, Pair, Paired, Series, collect_series, pair_series
from torchport.logs.reading import Printed
from torchport.results.printed_logs import NameRow, PrintedLogs, percent

WITHIN, OUTSIDE, UNDECIDED = "within the rule of thumb", "outside of it", "undecided"
# The mean relative difference of the loss to that on an NVIDIA GPU has to be below this, from step 21 on:
# FlagOpen/FlagPerf, training/nvidia/llama2_7b-megatron-deepspeed/README.md ("loss平均相对误差小于2%"), and its kin.
BOUND = 0.02
# MindSpore Transformers asks for more, over at least 1,000 steps of the same weights without randomness: the first loss
# within 0.005 or 0.5 %, the mean within 0.01 or 1 %, and the mean of the gradient's norm within 10 %.
# mindspore-ai/docs, docs/mindformers/docs/source_zh_cn/advanced_development/precision_optimization.md, 精度标准指标.
STRICT_FIRST, STRICT_FIRST_ABSOLUTE = 0.005, 0.005
STRICT_MEAN, STRICT_MEAN_ABSOLUTE, STRICT_NORM = 0.01, 0.01, 0.1
LEAST = 10  # pairs of a loss that have to be there for a word
LEAST_EVALUATIONS = 3  # of a loss of evaluations, which are few
UNSEEN = (
    "A log does not show weights, gradients or data, nor an operator whose error is still small, nor in which mode the "
    "model is evaluated."
)
_FLOAT32 = TOLERANCES["float32"]

_LOSS = re.compile(r"loss|(?:^|_)nll(?:$|_)|损失")
_NO_LOSS = re.compile(r"(?:^|_)(?:scaler?|scaling|weights?|coef\w*|lr|time|ratio|count|num)(?:$|_)")
_MAIN = re.compile(
    r"^(?:train(?:ing)?_|running_|global_)?(?:total_|lm_|avg_|average_|mean_|reduced_)?(?:train_)?loss(?:es|_value)?$|^损失值?$"
)
_EVALUATION = re.compile(r"^(?:val|valid|validation|test|eval|evaluation)(?:_|$)")
_OPPONENTS = tuple(
    re.compile(rf"(?:^|_)(?:{words})(?:_|$)|^{letter}loss|loss{letter}$")
    for words, letter in (("g|gen|generator|actor", "g"), ("d|dis|disc|discriminator|critic", "d"))
)
_NORM = re.compile(r"grad(?:ient)?_?norm|gnorm|global_norm")
# Not of the model: the machine, the clock, counters, settings.
_ASIDE = re.compile(
    r"time|eta$|second|runtime|elapsed|remaining|speed|throughput|per_s|_s$|^tps|tflops|flops|flos|^mfu|^wps|^ups|^fps|mem|"
    r"percentage|batch_size|samples|tokens|instances|^images|^size$|v_num|_steps?$|epochs?$|seed|^lr|_lr|learning_rate|"
    r"num_|number_of|iters?$|momentum|weight_decay|^wd$|^mom$|skipped|^data|qsize|gpu|npu|port|version|^step|^iter"
)


def compare_logs(first: Path, second: Path) -> tuple[Result[PrintedLogs], list[Paired]]:
    """Judge two logs: the result, and the pairs that it rests on. Raises TorchportError if a file has no numbers."""
    sides = [collect_series(read_lines(path)) for path in (first, second)]
    for path, side in zip((first, second), sides, strict=True):
        if not side:
            raise TorchportError(
                f"{path} has no printed numbers with a name",
                hint="Give what the training printed, or trainer_state.json, logging.jsonl, results.csv of it.",
            )
    paired = pair_series(*sides)
    kept = [one for one in paired if not _ASIDE.search(one.name) or _is_loss(one.name)]
    names = str(first), str(second)
    differences = [measure(one) for one in kept if one.pairs]
    judge = _Judge(names, sides[0], sides[1], {one.name: one for one in paired}, differences)
    findings = tuple(judge.findings())
    data = judge.answer(findings)
    return Result("compare", findings, data, {str(path): hash_file(path) for path in (first, second)}), kept


def is_within(difference: Difference) -> str:
    """ "within", "outside" or "undecided" for the loss of one name: by the mean of all pairs, and of the last tenth,
    so that a difference that sets in late is not averaged away. Undecided if the printed digits may hide the mean."""
    least = LEAST_EVALUATIONS if _EVALUATION.match(difference.name) else LEAST
    if difference.finite < least:
        return "undecided"
    if difference.mean >= BOUND or (difference.tail >= BOUND and difference.finite >= 3 * LEAST):
        return "outside"
    return "within" if difference.mean_at_most < BOUND else "undecided"


def _is_loss(name: str) -> bool:
    return bool(_LOSS.search(name)) and not _NO_LOSS.search(name)


def _find_opponents(names: Sequence[str]) -> list[str]:
    """The losses of a generator and a discriminator, if both are there: they rise and fall, and do not get smaller."""
    found = [[name for name in names if side.search(name)] for side in _OPPONENTS]
    return [*found[0], *found[1]] if all(found) else []


class _Judge:
    """Judges the pairs of two logs."""

    def __init__(
        self,
        logs: tuple[str, str],
        first: Mapping[str, Series],
        second: Mapping[str, Series],
        paired: Mapping[str, Paired],
        differences: Sequence[Difference],
    ) -> None:
        self.logs, self.first, self.second, self.paired = logs, first, second, paired
        self.differences = differences
        losses = [one for one in differences if _is_loss(one.name) and not one.name.endswith("_average")]
        main = [one for one in losses if _MAIN.match(one.name) or _EVALUATION.match(one.name)]
        trained = any(_MAIN.match(one.name) for one in main)
        self.judged = {one.name: is_within(one) for one in (main if trained else losses)}
        self.opponents = [] if trained else _find_opponents([one.name for one in losses])
        if self.opponents:
            self.judged = {name: word for name, word in self.judged.items() if name not in self.opponents}
        self.settings = list(differing_settings(first, second, paired))
        if self.settings:
            self.judged = {}

    def findings(self) -> Iterator[Finding]:
        """The most important first."""
        for text in self.settings:
            yield _finding("TP383", Severity.WARNING, f"the two logs are of different trainings: {text}")
        yield from self._not_finite()
        for one in self.differences:
            if self.judged.get(one.name) == "outside" and is_within(one) == "outside":
                yield self._outside(one)

    def answer(self, findings: Sequence[Finding]) -> PrintedLogs:
        """The word on both logs, and all that was measured."""
        outside = [one for one in findings if one.severity is Severity.ERROR]
        trained = [word for name, word in self.judged.items() if not _EVALUATION.match(name)]
        if self.settings:
            answer, reason = UNDECIDED, "the schedules differ, so the curves cannot be compared"
        elif outside:
            answer, reason = OUTSIDE, outside[0].message
        elif "within" in trained:
            name = next(name for name, word in self.judged.items() if word == "within")
            row = next(one for one in self.differences if one.name == name)
            answer = WITHIN
            reason = (
                f"{name} differs by {percent(row.mean)} in the mean of {row.finite} pairs, less than {percent(BOUND)}"
            )
        else:
            answer, reason = UNDECIDED, self._undecided()
        only = [tuple(n for n in here if n not in there and not _ASIDE.search(n)) for here, there in self._both_ways()]
        return PrintedLogs(
            answer=answer,
            reason=reason,
            logs=self.logs,
            bound=BOUND,
            rows=tuple(self._row(one) for one in self.differences),
            notes=tuple(self._notes()),
            only=(only[0], only[1]),
            unseen=UNSEEN,
        )

    def _both_ways(self) -> Iterator[tuple[Mapping[str, Series], Mapping[str, Series]]]:
        yield self.first, self.second
        yield self.second, self.first

    def _undecided(self) -> str:
        losses = [{name for name in side if _is_loss(name)} for side in (self.first, self.second)]
        if not losses[0] or not losses[1]:
            which = " and ".join(letter for letter, names in zip("AB", losses, strict=True) if not names)
            return f"no loss is printed in {which}"
        if not losses[0] & losses[1]:
            return f"no loss has the same name in both: A has {_some(losses[0])}, B has {_some(losses[1])}"
        rows = [one for one in self.differences if one.name in self.judged]
        if not rows and self.opponents:
            return (
                f"{_some(self.opponents)} are losses of opponents: how far they are apart tells nothing of the training"
            )
        if not rows:
            name = min(losses[0] & losses[1], key=len)
            return (
                f"{name} has no step in both: A has {self._span(self.first[name])}, B {self._span(self.second[name])}"
            )
        most = max(rows, key=lambda row: row.finite)
        if most.finite < LEAST:
            return f"{most.name} has {most.finite} pairs, and fewer than {LEAST} say nothing"
        return f"{most.name} is printed with too few digits: the difference may be up to {percent(most.mean_at_most)}"

    def _span(self, series: Series) -> str:
        steps = [number.step for number in series.numbers if number.step is not None]
        return f"steps {min(steps)} to {max(steps)}" if steps else f"{len(series.numbers)} without a step"

    def _not_finite(self) -> Iterator[Finding]:
        """NaN and infinities that one log alone has. Norms of gradients are left out: a GradScaler's first steps
        overflow by design."""
        for name in self.paired:
            if (_ASIDE.search(name) and not _is_loss(name)) or _NORM.search(name) or "scale" in name:
                continue
            broken = [_first_not_finite(side[name]) for side in (self.first, self.second)]
            for letter, here, there in (("B", broken[1], broken[0]), ("A", broken[0], broken[1])):
                if here is not None and there is None:
                    path = self.logs["AB".index(letter)]
                    place = Location(path, here.line, 1, here.line, 1)
                    self.judged |= {name: "outside"} if name in self.judged else {}
                    yield _finding(
                        "TP381",
                        Severity.ERROR,
                        f"{name} is {here.value} in {letter} {at(here)} (line {here.line}), "
                        "and always a number in the other log",
                        place,
                        "torchport run --record DIR --level tensor --keep-last 3 keeps the steps before the first NaN.",
                    )

    def _outside(self, one: Difference) -> Finding:
        late = one.mean < BOUND
        mean = f"{percent(one.tail)} in the mean of the last tenth" if late else f"{percent(one.mean)} in the mean"
        where = f"; the largest is {percent(one.largest)} {at(one.where.first)}" if one.where else ""
        drift = ", and the difference grows" if one.drift == "growing" else ""
        message = f"{one.name} differs by {mean} of {one.finite} pairs, not less than {percent(BOUND)}{where}{drift}"
        place = None
        if one.where is not None:
            place = Location(self.logs[1], one.where.second.line, 1, one.where.second.line, 1)
        return _finding("TP382", Severity.ERROR, message, place, self._where_to_look(one))

    def _where_to_look(self, one: Difference) -> str:
        """The first loss needs the weights, the data and the forward pass alone; later ones need the updates."""
        first = next((pair for pair in self.paired[one.name].pairs if is_finite(pair)), None)
        if not one.above and one.drift == "level":
            return (
                "B is as often above A as below it: other random numbers (dropout, the order of the data) look so, too."
            )
        if first is not None and relative_errors([first])[0] >= BOUND and not _EVALUATION.match(one.name):
            return "They differ from the first loss on: look at the initial weights, the data and the forward pass."
        if one.drift == "growing":
            return "The first losses agree: look at gradients, the optimizer, and rounding that training amplifies."
        return ""

    def _row(self, one: Difference) -> NameRow:
        where = one.where or one.last
        values = (one.last.first.value, one.last.second.value) if one.last else (math.nan, math.nan)
        return NameRow(
            name=one.name,
            by=one.by,
            pairs=one.pairs,
            alone=one.alone,
            mean=one.mean,
            mean_at_most=one.mean_at_most,
            largest=one.largest,
            where=at(one.where.first) if one.where else "",
            lines=(where.first.line, where.second.line) if where else (0, 0),
            tail=one.tail,
            drift=one.drift,
            above=one.above,
            last=at(one.last.first) if one.last else "",
            last_values=values,
            judged=self.judged.get(one.name, ""),
        )

    def _notes(self) -> Iterator[str]:
        judged = [one for one in self.differences if one.name in self.judged]
        for by, text in ((EPOCH, "by epoch"), (ORDER, "by their order alone")):
            names = [one.name for one in judged if one.by == by]
            if names:
                yield f"{_some(names)}: no step is printed in both, so the numbers are paired {text}"
        for one in judged:
            left = self.first[one.name].left_out + self.second[one.name].left_out
            if left:
                yield f"{one.name}: {left:,} numbers were left out, the logs have too many"
            if any(one.alone):
                yield f"{one.name}: {one.alone[0]} numbers of A and {one.alone[1]} of B have no partner"
        yield from self._strict(judged)
        for one in self.differences:
            if _NORM.search(one.name) and one.mean >= STRICT_NORM:
                yield f"{one.name} differs by {percent(one.mean)} in the mean; MindSpore Transformers asks for 10 %"
            elif _is_loss(one.name) and one.name not in self.judged and one.finite >= LEAST and one.mean >= BOUND:
                yield f"{one.name} differs by {percent(one.mean)} in the mean, though it is only a part of the loss"

    def _strict(self, judged: Sequence[Difference]) -> Iterator[str]:
        """How the losses of the training stand to rules that are stricter."""
        for one in judged:
            if self.judged[one.name] != "within" or _EVALUATION.match(one.name) or one.first is None:
                continue
            first = abs(one.first.first.value - one.first.second.value)
            near = first <= max(STRICT_FIRST_ABSOLUTE, STRICT_FIRST * abs(one.first.first.value)) + one.first.digit
            mean = one.mean < STRICT_MEAN or one.mean_absolute < STRICT_MEAN_ABSOLUTE
            missed = f"not met: {'the mean' if near else 'the first loss'} differs more"
            yield (
                f"{one.name}: the rule of MindSpore Transformers (first loss 0.5 % or 0.005, mean 1 % or 0.01) is "
                f"{'met' if near and mean else missed}"
            )
            yield from self._float32(self.paired[one.name])

    def _float32(self, paired: Paired) -> Iterator[str]:
        """Whether the losses meet the bounds of two float32 runs without a control run, if the log has the digits."""
        pairs = [pair for pair in paired.pairs if is_finite(pair)]
        early = [pair for pair in pairs if paired.by == STEP and (pair.first.step or 0) <= _FLOAT32.first_steps]
        if not early or _FLOAT32.run is None:
            return
        if any(pair.digit > _FLOAT32.first * abs(pair.first.value) for pair in early):
            return
        largest = max(relative_errors(early))
        within = largest <= _FLOAT32.first and max(relative_errors(pairs)) <= _FLOAT32.run
        yield (
            f"{paired.name}: the first {_FLOAT32.first_steps} steps differ by {percent(largest)} at most; float32 runs "
            f"are held to {percent(_FLOAT32.first)} there and to {percent(_FLOAT32.run)} after them, which is "
            f"{'met' if within else 'not met (half precision need not)'}"
        )


def _finding(code: str, severity: Severity, message: str, place: Location | None = None, hint: str = "") -> Finding:
    return Finding(code, severity, Safety.REPORT, place, message, hint)


def at(number: Printed) -> str:
    """Where a number was printed."""
    if number.step is not None and not number.near:
        return f"at step {number.step:,}"
    if number.epoch is not None:
        return f"at epoch {number.epoch:g}"
    return f"in line {number.line}"


def _first_not_finite(series: Series) -> Printed | None:
    return next((number for number in series.numbers if not math.isfinite(number.value)), None)


def _some(names: Sequence[str] | set[str], most: int = 4) -> str:
    listed = sorted(names, key=len)
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def to_csv(paired: Sequence[Paired]) -> str:
    """The pairs of each name, a line each; without a difference if one of them is no number."""
    lines = ["name,step,epoch,a,b,relative,line_a,line_b"]
    for one in paired:
        finite = [pair for pair in one.pairs if is_finite(pair)]
        errors = dict(zip(map(id, finite), relative_errors(finite), strict=True))
        lines += [_csv_line(one.name, pair, errors.get(id(pair))) for pair in one.pairs]
    return "\n".join(lines) + "\n"


def _csv_line(name: str, pair: Pair, error: float | None) -> str:
    a, b = pair.first, pair.second
    step = "" if a.step is None else a.step
    epoch = "" if a.epoch is None else f"{a.epoch:g}"
    apart = "" if error is None else f"{error:.6g}"
    return f"{name},{step},{epoch},{a.value!r},{b.value!r},{apart},{a.line},{b.line}"
