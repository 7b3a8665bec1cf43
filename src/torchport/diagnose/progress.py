"""The numbers that training prints, kept from a log of any size in bounded memory, and how the log ends."""

from __future__ import annotations

import re
from collections.abc import Sequence

WHOLE = 4 << 20  # bytes of a log that are looked at line by line; behind them a share of each block, and its end
SHARE = 200  # lines of a block behind WHOLE
KEPT = 20_000  # lines; if there are more, every second one is left out
TAIL = 60  # lines at the end
# Words of which one stands in a line with numbers of training; lower case.
_WORDS = (b"loss", b"scale", b"grad", b"nan", b"/s", b"s/it", b"elapsed", b"step", b"epoch", b"skip")
# How programs say that they have done what they were asked for.
_ENDED = re.compile(
    r"train_runtime|train_steps_per_second|eval_runtime"
    r"|\b(?:training|train|finetun\w{1,4}|evaluation|run|job) (?:is |has |was |has been )?(?:successfully )?"
    r"(?:completed?|finished|done|ended|over)\b"
    r"|\b(?:completed|finished|ended) (?:successfully|training|in \d)"
    r"|\bdone\W{0,3}$|\bdone in \d|success(?:fully)? (?:completed|finished|trained|saved|exported)"
    r"|^OK(?: \(.{1,60}\))?$|works? well on|\ball (?:tests|checks) passed\b"
    r"|Application startup complete|[1-9]\d* passed(?:,| in )|\btest (?:accuracy|acc|loss|set)\b"
    r"|(?:训练|运行|执行|测试|检查|推理|转换)(?:成功)?(?:完成|结束|成功)|全部通过"
    r"|^\W{0,3}(?:Acc@1|accuracy|perplexity|ppl|f1|mAP|exact match|eval)\b.{0,40}\d"
    r"|exit(?:ed with)?(?: code| status)?[ :=]{1,3}0\b",
    re.IGNORECASE,
)
# The same of a part, after which more may have to come.
_SAVED = re.compile(
    r"\bsaved (?:to|in|into|at|as|under)\b|\bsaved (?:the )?(?:model|checkpoint|weights|results?|\S{0,200}[/.]\w)"
    r"|\b(?:model|checkpoint|weights|results?|artifacts) (?:(?:is|was|were|are|has been|have been) )?saved\b"
    r"|保存(?:成功|完成|至|到)",
    re.IGNORECASE,
)
# Bars of what comes before training.
_BEFORE = re.compile(r"shards|download|fetching|tokeniz|\bmap\b|filter|split|loading|cach|compil|warm", re.IGNORECASE)
_COUNTED = re.compile(r"(?<![\d/.:-])(\d{1,9}) ?/ ?(\d{1,9})(?![\d/.:-])|\b(\d{1,9}) of (\d{1,9})\b")


class Progress:
    """Collects lines of one log; `lines` are those with numbers, by their number, in order."""

    def __init__(self) -> None:
        self.lines: dict[int, str] = {}
        self._bytes = 0
        self._last: tuple[Sequence[bytes], int] = ((), 1)

    def add_block(self, lines: Sequence[bytes], first: int) -> None:
        """Look at the lines of a block; `first` is the number of `lines[0]`."""
        step = 1 if self._bytes < WHOLE else max(len(lines) // SHARE, 1)
        self._collect(lines, first, step)
        self._bytes += sum(map(len, lines))
        self._last = lines, first

    def find_tail(self) -> list[tuple[int, str]]:
        """The last lines with words, with their numbers; of a bar that was drawn over, its last states."""
        lines, first = self._last
        self._collect(lines[-SHARE:], first + max(len(lines) - SHARE, 0), 1)
        numbered = [(first + at, line.decode("utf-8", "replace")) for at, line in enumerate(lines) if line.strip()]
        return [(number, part.strip()) for number, line in numbered[-TAIL:] for part in line.split("\r")[-2:]]

    def _collect(self, lines: Sequence[bytes], first: int, step: int) -> None:
        for at in range(0, len(lines), step):
            line = lines[at]
            if len(line) > 1 and any(word in line.lower() for word in _WORDS):
                self.lines[first + at] = line.decode("utf-8", "replace")
        while len(self.lines) > KEPT:
            kept = list(self.lines.items())
            self.lines = dict(kept[::2])


def find_ending(tail: Sequence[tuple[int, str]]) -> tuple[int, str]:
    """The line at the end of a log that says that the program has done what it was asked for; (0, "") for none.

    A saved checkpoint, or a bar at 100 %, is no end if the last count of steps in the log is not full.
    """
    counted = [full for _, line in tail if not _BEFORE.search(line) and (full := is_count_full(line)) is not None]
    full = not counted or counted[-1]
    for number, line in reversed(tail):
        if _ENDED.search(line):
            return number, line
        if full and not _BEFORE.search(line) and (_SAVED.search(line) or is_count_full(line)):
            return number, line
    return 0, ""


def is_count_full(line: str) -> bool | None:
    """Whether the counts in the line have come to their ends, such as step 500/500; None where it has none."""
    counts = [(int(done or other), int(whole or total)) for done, whole, other, total in _COUNTED.findall(line)]
    counts += [(int(percent), 100) for percent in re.findall(r"(?<![\d.])(\d{1,3})(?:\.0{1,3})? ?%\|", line)]
    counts = [(done, whole) for done, whole in counts if 0 < whole >= done]
    return all(done == whole for done, whole in counts) if counts else None
