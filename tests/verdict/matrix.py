"""The table of sabotages and of the words on them: 45 scripts, 18 kinds of fault (the learning rate in two sizes).

`cells.toml` says what is done wrong to each port, `status.json` what was said of it. Everything here is a function of
those tables; `ports.py` makes the rows.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS, CELLS, STATUS = HERE / "scripts", HERE / "cells.toml", HERE / "status.json"
COLUMNS = (
    "step deleted",
    "rate x1.1",
    "rate x3",
    "optimizer setting",
    "loss term dropped",
    "smoothing off",
    "layer frozen",
    "mask off",
    "wrong reduction",
    "batch order",
    "dropout rate",
    "dtype of a region",
    "clipping or schedule",
    # Outside of the first twenty steps, or of any.
    "late fault",
    "start",
    "file",
    "evaluation",
    "average",
    "device of a part",
)
# The sabotages that a device with another order of sums has to notice too: what rounding could hide.
REORDERED = {
    "mlp": ("rate x1.1",),
    "cnn": ("dropout rate",),
    "gan": ("dtype of a region",),
    "transformer": ("mask off",),
    "ddp": ("optimizer setting",),
    "checkpointing": ("late fault",),
    "ema_checkpoint": ("average",),
    "finetune": ("start",),
    "fp16_skips": ("clipping or schedule",),
    "tagger": ("evaluation",),
}
HEALTHY = "healthy"  # the column of the port as it was converted
HOLDS, UNDECIDED, WRONG = "holds", "undecided", "does not hold"
LEAST_CELLS, LEAST_SCRIPTS = 300, 45
MOST_UNDECIDED = 0.02  # of the sabotaged ports
MOST_UNDECIDED_HEALTHY = 0.0  # of the healthy ones


class TableError(Exception):
    """A row of cells.toml that is not what it should be."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """What was said of one port.

    `code` is the finding that decided it ("" where it holds), `noticed` the first quantity that differed and its step
    ("" where none did, or no step was told); `acts` what the sabotage changed, "" for nothing (and for a healthy port).
    """

    word: str
    code: str = ""
    noticed: str = ""
    acts: str = ""


Edits = Mapping[str, Mapping[str, tuple[str, str]]]  # script -> column -> text, and what takes its place
Table = Mapping[str, Mapping[str, Row]]  # script -> column, with HEALTHY -> row


def load(path: Path = CELLS) -> tuple[Edits, Mapping[str, int]]:
    """The edits of cells.toml, and how many ranks a script is started as (those that are not there: one).

    Raises TableError for an unknown column, and for a row that is not two different texts.
    """
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    for script, row in table["cells"].items():
        for column, texts in row.items():
            if column not in COLUMNS:
                raise TableError(f"{script}: there is no column {column!r}")
            if not (len(texts) == 2 and all(isinstance(text, str) for text in texts) and texts[0] != texts[1]):
                raise TableError(f"{script}, {column}: expected two different texts, found {texts!r}")
    edits = {
        script: {column: (before, after) for column, (before, after) in row.items()}
        for script, row in table["cells"].items()
    }
    return edits, table["ranks"]


def sabotaged(text: str, edit: tuple[str, str], where: str) -> str:
    """`text` with the edit. Raises TableError unless its first text is there exactly once."""
    before, after = edit
    if (count := text.count(before)) != 1:
        raise TableError(f"{where}: {before!r} is in the converted script {count} times, not once")
    return text.replace(before, after)


def read(path: Path = STATUS) -> dict[str, dict[str, Row]]:
    """The stored table; empty where there is none."""
    if not path.exists():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {script: {column: Row(**row) for column, row in columns.items()} for script, columns in rows.items()}


def write(table: Table, path: Path = STATUS) -> None:
    """Store a table, one row a line."""
    scripts = []
    for script, columns in sorted(table.items()):
        lines = [
            f"  {json.dumps(column)}: {json.dumps(dataclasses.asdict(columns[column]), ensure_ascii=False)}"
            for column in (HEALTHY, *COLUMNS)
            if column in columns
        ]
        scripts.append(f"{json.dumps(script)}: {{\n" + ",\n".join(lines) + "\n}")
    path.write_text("{\n" + ",\n".join(scripts) + "\n}\n", encoding="utf-8")


def merged(stored: Table, found: Table, edits: Edits) -> dict[str, dict[str, Row]]:
    """The rows that `edits` asks for: those found, else those stored."""
    table = {
        script: {
            column: row
            for column in (HEALTHY, *edits[script])
            if (row := found.get(script, {}).get(column) or stored.get(script, {}).get(column))
        }
        for script in edits
    }
    return {script: columns for script, columns in table.items() if columns}


def worse(stored: Table, found: Table) -> Iterator[str]:
    """The cells whose word is worse than the stored one."""
    for script, columns in found.items():
        for column, row in columns.items():
            before = stored.get(script, {}).get(column)
            order = (HOLDS, UNDECIDED, WRONG) if column == HEALTHY else (WRONG, UNDECIDED, HOLDS)
            if before is not None and order.index(row.word) > order.index(before.word):
                yield f"{script}, {column}: {before.word} -> {row.word}"


def failed_bars(table: Table, edits: Edits, *, least: bool = True) -> Iterator[str]:
    """Name each promise that the table does not keep. Without `least` the number of cells is not looked at."""
    healthy = {script: columns[HEALTHY] for script, columns in table.items() if HEALTHY in columns}
    cells = {
        (script, column): row
        for script, columns in table.items()
        for column, row in columns.items()
        if column != HEALTHY
    }
    asked = {(script, column) for script, row in edits.items() for column in row}
    if missing := sorted(asked - {*cells}):
        yield f"{len(missing)} cells of cells.toml have no word: {', '.join(missing[0])} ..."
    yield from (f"{script}: no word on the healthy port" for script in sorted({*edits} - {*healthy}))
    if len(healthy) < LEAST_SCRIPTS:
        yield f"{len(healthy)} healthy scripts, where {LEAST_SCRIPTS} are wanted"
    if least and len(cells) < LEAST_CELLS:
        yield f"{len(cells)} sabotaged ports, where {LEAST_CELLS} are wanted"
    for (script, column), row in cells.items():
        if not row.acts:
            yield f"{script}, {column}: the sabotage changes nothing; the cell has to be empty"
        if row.word == HOLDS:
            yield f"{script}, {column}: holds, though {row.acts or 'it was sabotaged'}"
    for script, row in healthy.items():
        if row.word == WRONG:
            yield f"{script}: does not hold, though nothing is wrong with it ({row.code} {row.noticed})"
    for what, rows, most in (
        ("sabotaged", cells.values(), MOST_UNDECIDED),
        ("healthy", healthy.values(), MOST_UNDECIDED_HEALTHY),
    ):
        undecided = _count(rows, UNDECIDED)
        if undecided > most * len(rows):
            yield f"{undecided} of {len(rows)} {what} ports undecided, where {most:.0%} are allowed"


def summary(table: Table) -> str:
    """The words, counted by column."""
    lines = [f"{'':22} {'ports':>5} {WRONG:>14} {UNDECIDED:>10} {HOLDS:>6}"]
    for column in (HEALTHY, *COLUMNS):
        rows = [columns[column] for columns in table.values() if column in columns]
        counts = [_count(rows, word) for word in (WRONG, UNDECIDED, HOLDS)]
        lines.append(f"{column:22} {len(rows):5} {counts[0]:14} {counts[1]:10} {counts[2]:6}")
    return "\n".join(lines)


def markdown(table: Table) -> str:
    """The matrix as a table of Markdown: each word, and the quantity that noticed it, with its step."""
    short = {WRONG: "✗", UNDECIDED: "?", HOLDS: "holds"}
    lines = [f"| script | {HEALTHY} | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 2) + "|"]
    for script, columns in sorted(table.items()):
        cells = [
            f"{short[row.word]} {row.noticed or row.code}".strip() if (row := columns.get(column)) else ""
            for column in (HEALTHY, *COLUMNS)
        ]
        lines.append(f"| {script} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _count(rows: Iterable[Row], word: str) -> int:
    return sum(row.word == word for row in rows)
