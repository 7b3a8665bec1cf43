"""Final metrics of a run, read from what the script printed."""

from __future__ import annotations

import dataclasses
import re

# Words that name a metric of the model's quality. What is not listed (times, rates, memory) may differ
# freely.
QUALITY = re.compile(
    r"\b(?:(?:train(?:ing)?|test|val(?:idation|id)?|eval(?:uation)?|dev|best|final|top|mean|avg|average)[\s_-]*)*"
    r"(?:accuracy|acc(?:@\d)?|precision|recall|f1(?:[\s_-]score)?|auc|map|m?iou|dice|bleu|rouge\w*|perplexity|ppl|error|"
    r"loss|psnr|ssim|mse|mae|rmse|wer|cer|prec@\d)\b",
    re.IGNORECASE,
)
# Those of them that are shares of one, or points of a hundred.
SHARE = re.compile(r"acc|prec|recall|f1|auc|map|iou|dice|bleu|rouge")
VALUE = re.compile(
    r"[\s:=\"']*(?P<value>[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|[-+]?inf)(?P<percent>\s*%)?",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """One printed number: its name in lower case with single spaces, its value, whether it is in percent."""

    name: str
    value: float
    percent: bool


def final_metrics(output: str) -> dict[str, Metric]:
    """The last value that was printed of each metric, by name. Empty where the script prints none."""
    found: dict[str, Metric] = {}
    for match in QUALITY.finditer(output):
        number = VALUE.match(output, match.end())
        if number is not None:
            name = " ".join(re.split(r"[\s_-]+", match.group().lower()))
            found[name] = Metric(name, float(number["value"]), number["percent"] is not None)
    return found
