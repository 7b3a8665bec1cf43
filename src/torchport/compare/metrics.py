"""Final metrics of a run, read from what the script printed."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

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
    r"[\s:=\"']*(?P<value>[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|[-+]?inf)"
    r"(?:\s*/\s*(?P<total>\d+)|(?P<percent>\s*%))?",
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
            value, total = float(number["value"]), float(number["total"] or 0)
            if total:  # 9513/10000 is a share as well
                found[name] = Metric(name, 100 * value / total, percent=True)
            else:
                found[name] = Metric(name, value, number["percent"] is not None)
    return found


def compare_metrics(reference: str, port: str, points: float, relative: float | None) -> list[dict[str, Any]]:
    """The metrics that both outputs have: shares may differ by `points`, others by `relative`; None does not judge
    those."""
    theirs, ours = final_metrics(reference), final_metrics(port)
    rows = []
    for name in theirs:
        if name in ours:
            allowed = _allowed(theirs[name], points, relative)
            difference = abs(ours[name].value - theirs[name].value)
            both_nan = math.isnan(ours[name].value) and math.isnan(theirs[name].value)
            rows.append(
                {
                    "name": name,
                    "reference": theirs[name].value,
                    "port": ours[name].value,
                    "percent": theirs[name].percent,
                    "allowed": allowed,
                    "holds": allowed is None or both_nan or difference <= allowed,
                }
            )
    return rows


def _allowed(metric: Metric, points: float, relative: float | None) -> float | None:
    # A share is printed as 97.2 %, as 97.2 or as 0.972; half a point of each is the same difference.
    if metric.percent or SHARE.search(metric.name) is not None:
        return points if metric.percent or abs(metric.value) > 1 else points / 100
    # Printed numbers are rounded, usually to four digits.
    return None if relative is None else relative * abs(metric.value) + 1e-4
