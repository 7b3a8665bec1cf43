"""The pairs of a name and a number in one line of text."""

from __future__ import annotations

import re
from collections.abc import Iterator

_NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d,])|\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,4})?|"
    r"[-+]?(?:nan|inf(?:inity)?)\b"
)
# Behind a number: what makes it no value (a unit of time or memory, a time of day, a version) or a percentage.
_END = r"(?![\w/:%]|\.\d|[- ]?(?:ms|s|secs?|seconds?|mins?|minutes?|hours?|[KMGT]i?B|MB|GB|it/s|s/it)\b)"
_WORD = r"[^\W\d_][\w@]*+(?:[./\-][^\W\d_][\w@]*+|-\d++(?![.\d]))*+"
_PAIR = re.compile(
    rf"(?<![\w@./\-])(?P<name>{_WORD}(?:[ ]{_WORD}){{0,4}})(?:[ ]?\([^()]{{1,60}}\))?['\"]?"
    rf"(?:[ \t]{{0,40}}(?:[:=|：]{{1,3}}|\.{{3,80}}|->|\b(?:is|was)\b)[:=]?[ \t]{{0,12}}|(?P<bare>[ \t]{{1,12}}))"
    r"['\"\[(]{0,3}(?:(?:tensor|np\.float\d+|float|array)\(\[?)?\[?"
    rf"(?:(?P<value>{_NUMBER})(?:[ ]{{0,2}}/[ ]{{0,2}}(?P<total>\d{{1,12}})(?![\w.])|"
    rf"/(?P<mean>\d+\.\d+)\]|[ ]?(?P<percent>%)|{_END})"
    rf"(?:[ \t]{{0,2}}\([ \t]{{0,6}}(?P<average>{_NUMBER})(?P<percents>[ ]?%)?[ \t]{{0,6}}\))?)",
    re.IGNORECASE,
)
_METRIC = re.compile(
    r"loss\w*|acc\w*|top\d?|acc@\d|prec(?:ision)?(?:@\d)?|recall(?:@\d)?|lr|norm|map\w*|m?iou|dice|f1|auc|bleu\w*|rouge\w*|ppl|"
    r"perplexity|r?mse|mae|psnr|ssim|reward\w*|kl|rate|scale|err(?:or)?|nll\w*|wer|cer|score|entropy|gnorm|grad_?norm|损失|准确率|精度",
    re.IGNORECASE,
)
_QUOTED = re.compile(
    rf"['\"](?P<name>[^'\"{{}}]{{1,100}})['\"]\s{{0,4}}:\s{{0,4}}(?P<text>\"[^\"]{{0,60}}\"|'[^']{{0,60}}'|"
    rf"(?:tensor\(|np\.float\d+\()?\[?(?:{_NUMBER})\]?[^,{{}}\[\]]{{0,60}}?)(?=\s{{0,4}}(?:,|\}}|$))",
    re.IGNORECASE,
)
_WHOLE = re.compile(
    rf"(?:tensor\(|np\.float\d+\()?\[?(?P<value>{_NUMBER})\s?(?P<percent>%)?\]?(?:, ?device=.{{0,20}})?\)?", re.I
)
_LEADING = {
    "the",
    "a",
    "an",
    "and",
    "with",
    "info",
    "debug",
    "warning",
    "rank",
    "cpu",
    "cuda",
    "gpu",
    "npu",
    "device",
    "took",
}
_TRAILING = {"at", "after", "in", "of", "for", "on", "is", "was", "now"}
Value = tuple[str, float, float]  # name, value, unit of the last digit


def find_values(text: str) -> Iterator[Value]:
    """The named numbers of a line, in order. Times, sizes and versions are none."""
    at = 0
    while match := _PAIR.search(text, at):
        at = match.end()
        words = match["name"].split(" ")
        kept = _trimmed(words)
        if match["bare"] is not None and not _METRIC.search(kept[-1]):
            at = match.start("name") + len(words[0])
            continue
        name = join_name(kept)
        if not name or name in _LEADING or name.endswith(("_py", "_cpp", "_cc")):
            continue
        yield (name, *_number(match["value"], match["total"]))
        average = match["mean"] or (match["average"] if not match["total"] else None)
        if average:
            yield (f"{name}_average", *_number(average))


def find_quoted(text: str) -> Iterator[tuple[str, str]]:
    """The keys of a dict or JSON object with their values as text, without quotes."""
    for match in _QUOTED.finditer(text):
        yield match["name"], match["text"].strip("'\"")


def parse_value(text: str) -> tuple[float, float] | None:
    """A number and the unit of its last digit, from a text that holds nothing else."""
    match = _WHOLE.fullmatch(text.strip())
    return _number(match["value"]) if match else None


def join_name(words: list[str] | str) -> str:
    """`lm loss`, `train/loss` as "lm_loss", "train_loss"."""
    text = words if isinstance(words, str) else " ".join(words)
    return re.sub(r"[^\w@]+", "_", text.lower()).strip("_")


def _trimmed(words: list[str]) -> list[str]:
    start, end = 0, len(words)
    while start < end - 1 and words[start].lower() in _LEADING:
        start += 1
    while end - start > 1 and words[end - 1].lower() in _TRAILING:
        end -= 1
    return words[start:end]


def _number(text: str, total: str | None = None) -> tuple[float, float]:
    plain = text.replace(",", "")
    value = float(plain)
    mantissa, _, exponent = plain.lower().partition("e")
    if mantissa.strip("+-")[:1] in ("n", "i"):
        return value, 0.0
    digit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])) if abs(int(exponent or 0)) < 300 else 0.0
    whole = int(total or 0)
    return (100 * value / whole, 100 / whole) if whole else (value, digit)
