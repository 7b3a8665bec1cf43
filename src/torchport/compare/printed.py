"""The numbers in a script's output that say how good its model is, and in which unit each is printed."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterator


class Kind(enum.StrEnum):
    """What sort of number a name stands for."""

    SHARE = "share"  # of samples, or an average of such: between 0 and 1, or 0 and 100
    PERPLEXITY = "perplexity"  # exp of a loss
    LOSS = "loss"  # everything else: what a loss is compared like


_SHARES = re.compile(
    r"\b(?:acc(?:uracy)?|prec(?:ision)?|recall|f1|m?auc|auroc|m?ap|m?iou|dice|bleu|rouge\w*|wer|cer|sensitivity|"
    r"specificity|err(?:or)? rate)\d*\b|\btop ?\d+\b"
)
_PERPLEXITIES = re.compile(r"\b(?:perplexity|ppl)\b")
# "error" alone is an error of regression as often as a rate of errors: the stricter of the two.
_LOSSES = re.compile(r"\b(?:loss(?:es)?|err(?:or)?|psnr|ssim|r?mse|mae|nll|elbo|bpc|bpd)\d*\b")
# Names with one of these are of something else: times, rates, factors.
_OTHERS = re.compile(
    r"\b(?:time|runtime|seconds?|secs?|ms|took|elapsed|duration|computed|scale|weights?|coef\w*|lr|fn|function)\b"
)
_BEFORE = {
    "train",
    "training",
    "test",
    "testing",
    "val",
    "valid",
    "validation",
    "eval",
    "evaluation",
    "dev",
    "best",
    "final",
    "last",
    "top",
    "mean",
    "avg",
    "average",
    "total",
    "overall",
    "balanced",
    "macro",
    "micro",
    "weighted",
}
# They say nothing, or, of a device, another thing in each run.
_SILENT = {"the", "a", "an", "and", "with", "its", "of", "in", "is", "cpu", "cuda", "gpu", "npu"}

# Most lines of a long output have none of them.
_SOME = re.compile(
    r"acc|prec|recall|f1|auc|ap|iou|dice|bleu|rouge|wer|cer|sensit|specif|err|top|perplex|ppl|loss|psnr|ssim|mse|mae|nll|"
    r"elbo|bp[cd]",
    re.IGNORECASE,
)
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_TOKEN = re.compile(r"[A-Za-z]\w*+(?:@\d++|[./-][A-Za-z]\w*+|-\d++(?!\.))*+")
_AFTER = re.compile(r"[ \t]+(?:rate|score|value)\b", re.IGNORECASE)
_OF = re.compile(r"[ \t]+(?:of|on|for|over|at|after|in)[ \t][^:=,;|]{1,80}(?=[:=])")
RANK = re.compile(r"\brank[\s:=_#-]{0,3}(\d+)\b", re.IGNORECASE)
_NUMBER = r"(?>[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?)"
_VALUE = re.compile(
    r"(?:[ \t]*\((?P<word>%|[a-z ]{1,12})\))?(?:[ \t:=\"'|│┃\[]|[-–][ \t])*(?:(?:is|was)\b[ \t:=]*)?"
    rf"(?:(?:tensor|np\.\w+)\(\[?)?(?P<value>{_NUMBER}|[-+]?(?:nan|inf)\b)"
    r"(?:[ \t]*/[ \t]*(?P<total>\d+)(?![.\d])|(?P<percent>[ \t]*%))?"
    rf"(?:[ \t]*\([ \t]*(?P<average>\d+\.\d*(?:e[-+]?\d+)?)[ \t]*%?[ \t]*\))?"
    r"(?![ \t]*(?:ms|s|secs?|seconds?|min|it/s)\b)",
    re.IGNORECASE,
)
_KEPT = 8  # of each metric: the first and so many of the last


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """One printed number: its name in lower case with single spaces, its value (in percent where it is a percentage
    or a count of `total`), the unit of its last printed digit in the same unit."""

    name: str
    kind: Kind
    value: float
    digit: float
    percent: bool = False
    total: int | None = None


def split_lines(output: str) -> list[str]:
    """The lines of an output without colours; a carriage return begins a line as well."""
    return _COLOUR.sub("", output).replace("\r", "\n").split("\n")


def printed_metrics(output: str) -> dict[str, list[Metric]]:
    """What was printed of each metric, by name: the first value and the last ones, in order.

    Read line by line, where a carriage return begins a line as well; colours are left out. A number in parentheses
    behind another one is the running average that training loops print, a metric of its own.
    """
    found: dict[str, list[Metric]] = {}
    for line in split_lines(output):
        for metric in _of_line(line) if _SOME.search(line) else ():
            values = found.setdefault(metric.name, [])
            values.append(metric)
            if len(values) > _KEPT + 1:
                del values[1]
    return found


def final_metrics(output: str) -> dict[str, Metric]:
    """The last value that was printed of each metric, by name. Empty where the script prints none."""
    return {name: values[-1] for name, values in printed_metrics(output).items()}


def _of_line(line: str) -> Iterator[Metric]:
    before: list[str] = []  # words that follow each other up to here
    rank = RANK.search(line)
    end = 0
    for token in _TOKEN.finditer(line):
        if token.start() < end:
            continue
        if line[end : token.start()].strip(" \t"):
            before.clear()
        name, end = _words(token.group()), token.end()
        if (kind := _kind(name)) is None:
            before.append(name)
            continue
        if after := _AFTER.match(line, end):
            name, end = name + after.group().lower().replace("\t", " "), after.end()
            kind = _kind(name) or kind
        of, start = _OF.match(line, end), end
        value = _VALUE.match(line, end)
        if value is None and of is not None and not _OTHERS.search(of.group().lower()):
            name += " " + " ".join(re.sub(r"\d+", " ", of.group().lower()).split())
            value, start = _VALUE.match(line, of.end()), of.end()
        if value is None or value.end() == start:
            before.append(name)
            continue
        word = (value["word"] or "").lower().strip()
        of_rank = f"rank {rank[1]}" if rank and rank.end() <= token.start() else ""
        parts = [of_rank, *_leading(before), name, word.strip("%")]
        name = " ".join(part for part in parts if part)
        yield _metric(name, kind, value, percent=word == "%")
        if value["average"]:
            yield Metric(
                f"{name} (average)", kind, float(value["average"]), _digit(value["average"]), bool(value["percent"])
            )
        before.clear()
        end = value.end()


def _metric(name: str, kind: Kind, match: re.Match[str], *, percent: bool) -> Metric:
    text = match["value"].replace(",", "")
    value, digit, total = float(text), _digit(text), int(match["total"] or 0)
    if total and 0 <= value <= total and value == int(value):
        return Metric(name, kind, 100 * value / total, 100 / total, percent=True, total=total)
    return Metric(name, kind, value, digit, percent or match["percent"] is not None)


def _digit(number: str) -> float:
    mantissa, _, exponent = number.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - decimals) if mantissa.strip("+-")[:1] not in ("n", "i") else 0.0


def _words(token: str) -> str:
    """`train_loss`, `train/loss` and `trainLoss` as "train loss"."""
    name = " ".join(re.split(r"[_./-]+", token)).strip()
    if _kind(name.lower()) is None:
        name = re.sub(r"(?<=[a-z\d])(?=[A-Z])", " ", name)
    return name.lower()


def _kind(name: str) -> Kind | None:
    if _OTHERS.search(name):
        return None
    for kind, words in ((Kind.SHARE, _SHARES), (Kind.PERPLEXITY, _PERPLEXITIES), (Kind.LOSS, _LOSSES)):
        if words.search(name):
            return kind
    return None


def _leading(before: list[str]) -> list[str]:
    """The words before a name that belong to it: those that are known, or else one that may be anything."""
    start = len(before)
    while start and before[start - 1] in _BEFORE:
        start -= 1
    if start == len(before) and before and before[-1].isalpha() and before[-1] not in _SILENT:
        start -= 1
    return before[start:]
