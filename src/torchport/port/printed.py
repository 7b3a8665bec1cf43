"""The numbers that two runs print, line by line: lines belong together that have the same words around their
numbers."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from torchport.compare.printed import RANK, Kind, printed_metrics, split_lines
from torchport.port.texts import NUMBER, mask_text, number_difference, pick_worst
from torchport.results.port import FileRow

Line = tuple[str, list[str]]  # and its numbers
Lines = dict[str, list[Line]]  # by their words
PRINTED = "printed"
NAME = "what is printed"
# A number that differs by more is another thing, such as a time that is printed without a unit: nothing is said of it,
# unless it is a count out of a total.
# Losses and shares are compared by their names as well (`compare.metrics`).
FURTHEST = 3.0
MOST_LINES = 20_000
_NAMED = re.compile(r"in the line '(.*)'", re.DOTALL)


def compare_printed(
    reference: str, port: str, tolerance: float, again: str | None = None, times: float = 1.0, points: float = 0.0
) -> FileRow | None:
    """The largest difference of a number, relative to the larger; None if no line of both has a number.

    Numbers may differ by `tolerance`, or by `times` the difference of the same line in `again`, the output of
    another run of the original; a share of samples, such as an accuracy, by `points` of a hundred. Lines are left out
    if their words do not occur equally often in all outputs: progress bars, warnings. Only lines that the port lacks,
    with nothing in their place, are a difference: a training that did not stop early, an evaluation that was left out.
    """
    outputs = [[line for line in split_lines(output) if line.strip()] for output in (reference, port)]
    sides = [_by_words(output) for output in outputs]
    more = None if again is None else _by_words(split_lines(again))
    compared = 0
    found: list[tuple[float, float, str]] = [
        (math.inf, tolerance, f"the port does not print the line {line!r}")
        for line in _list_missing(len(outputs[0]) - len(outputs[1]), sides[0], sides[1], more)
    ]
    for words, rows in sides[0].items():
        others = sides[1].get(words, [])
        if len(others) != len(rows):
            continue
        allowed = tolerance
        if more is not None:
            if len(more.get(words, [])) != len(rows):
                continue
            allowed = max([tolerance, *(times * one for one, _ in _differences(words, rows, more[words], points))])
        compared += len(rows)
        found += [(difference, allowed, text) for difference, text in _differences(words, rows, others, points)]
    if not compared:
        return None
    worst, note, apart = pick_worst(found)
    lines = f"{compared} lines with numbers"
    return FileRow(NAME, PRINTED, lines, lines, not apart, worst, note)


def find_unsteady_words(reference: str, again: str) -> frozenset[str]:
    """The words of the lines that do not have the same numbers in two outputs of one program."""
    one, other = (_by_words(split_lines(output)) for output in (reference, again))
    return frozenset(
        words
        for words, rows in one.items()
        if [numbers for _, numbers in rows] != [numbers for _, numbers in other.get(words, [])]
    )


def is_among(note: str, words: Collection[str]) -> bool:
    """Whether the line that `note` names, as `compare_printed` writes it, is one with such words."""
    line = _NAMED.search(note)
    return line is not None and any(text.startswith(NUMBER.sub("#", line[1])) for text in words)


def _list_missing(shorter: int, theirs: Lines, ours: Lines, again: Lines | None) -> Iterator[str]:
    """The lines with numbers that the port prints less often, if they are all the lines by which it is `shorter`."""
    fewer = {words: len(rows) - len(ours.get(words, [])) for words, rows in theirs.items()}
    fewer = {words: count for words, count in fewer.items() if count}
    replaced = any(count < 0 for count in fewer.values()) or ours.keys() - theirs.keys()
    if replaced or sum(fewer.values()) != shorter:
        return
    for words in fewer:
        if again is None or len(again.get(words, [])) == len(theirs[words]):
            yield theirs[words][-1][0]


def _differences(words: str, rows: list[Line], others: list[Line], points: float) -> Iterator[tuple[float, str]]:
    counts = _find_counts(words)
    for (line, numbers), (_, theirs) in zip(rows, others, strict=True):
        shares = find_shares(line) if points else {}
        for place, (number, other) in enumerate(zip(numbers, theirs, strict=True)):
            if abs(float(number) - float(other)) <= points * shares.get(float(number), 0.0):
                continue
            difference = _measure(number, other, any_size=place in counts)
            yield difference, f"{other} against {number} in the line {line!r}"


def find_shares(line: str) -> dict[float, float]:
    """The numbers of a line that are shares of samples, and a point of a hundred in the unit of each."""
    metrics = [metric for values in printed_metrics(line).values() for metric in values]
    return {
        metric.value: 1.0 if metric.percent or abs(metric.value) > 1 else 0.01
        for metric in metrics
        if metric.kind is Kind.SHARE and metric.total is None
    }


def _find_counts(words: str) -> set[int]:
    """The places of the numbers that are counts out of a total: "12 of 300", "12/300"."""
    between = words.split("#")[1:-1]
    return {place for place, text in enumerate(between) if text.strip() in ("of", "out of", "/")}


def _measure(number: str, other: str, *, any_size: bool) -> float:
    one, two = float(number), float(other)
    if not any_size and one and two and math.isfinite(two / one) and not 1 / FURTHEST <= abs(two / one) <= FURTHEST:
        return 0.0
    digit = max(_digit(number), _digit(other))
    return 0.0 if abs(one - two) <= 1.5 * digit else number_difference(one, two)


def _digit(number: str) -> float:
    """The unit of the last printed digit; 0 for an integer, which is not rounded."""
    mantissa, _, exponent = number.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - decimals) if decimals else 0.0


def _by_words(output: Sequence[str]) -> Lines:
    found: Lines = defaultdict(list)
    for line in output[:MOST_LINES]:
        masked = mask_text(line).strip()
        numbers = NUMBER.findall(masked)
        if numbers:
            # Ranks print to one output, in another order in each run: a line that names its rank is that rank's.
            rank = RANK.search(line)
            words = NUMBER.sub("#", masked) + (f"\n{rank[1]}" if rank else "")
            found[words].append((masked[:60], numbers))
    return found
