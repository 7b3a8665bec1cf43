"""The matrix of sabotaged ports (tests/verdict): its table fits the converted scripts, and each of its bars refuses."""

from __future__ import annotations

import ast
import copy
import dataclasses
import json
import sys
from pathlib import Path

import pytest

from torchport.convert import convert_tree
from torchport.record import recording
from torchport.record.recording import Recording

sys.path.insert(0, str(Path(__file__).parents[1] / "verdict"))

import acting
import matrix
from matrix import COLUMNS, HEALTHY, HOLDS, UNDECIDED, WRONG, Row, TableError

EDITS, RANKS = matrix.load()
Table = dict[str, dict[str, Row]]


# What is kept of a table.


def good() -> Table:
    """Every cell noticed, every healthy port right."""
    noticed = Row(WRONG, "TP301", "loss, step 1", "the loss changes at step 1")
    return {script: {HEALTHY: Row(HOLDS)} | dict.fromkeys(row, noticed) for script, row in EDITS.items()}


def words(table: Table) -> list[str]:
    return list(matrix.failed_bars(table, EDITS))


def changed(table: Table, script: str, column: str, **fields: str) -> Table:
    table = copy.deepcopy(table)
    table[script][column] = dataclasses.replace(table[script][column], **fields)
    return table


def test_a_good_table_is_accepted() -> None:
    assert words(good()) == []


def test_one_sabotaged_port_that_holds_is_refused() -> None:
    assert words(changed(good(), "vae", "rate x1.1", word=HOLDS)) == [
        "vae, rate x1.1: holds, though the loss changes at step 1"
    ]


def test_a_sabotage_that_changes_nothing_is_refused_whatever_is_said_of_it() -> None:
    for word in (WRONG, UNDECIDED):
        (said,) = words(changed(good(), "cnn", "batch order", acts="", word=word))
        assert said == "cnn, batch order: the sabotage changes nothing; the cell has to be empty"
    assert len(words(changed(good(), "cnn", "batch order", acts="", word=HOLDS))) == 2


def test_one_healthy_port_that_does_not_hold_is_refused() -> None:
    (said,) = words(changed(good(), "gan", HEALTHY, word=WRONG, code="TP301"))
    assert said.startswith("gan: does not hold, though nothing is wrong with it (TP301")


def undecided(columns: tuple[str, ...], count: int) -> Table:
    """A good table in which so many ports are undecided."""
    table = good()
    cells = [(script, column) for script, row in table.items() for column in row if column in columns]
    for script, column in cells[:count]:
        table = changed(table, script, column, word=UNDECIDED)
    return table


def test_one_in_fifty_of_the_sabotaged_ports_may_be_undecided_and_no_more() -> None:
    cells = sum(len(row) for row in EDITS.values())
    assert words(undecided(COLUMNS, cells // 50)) == []
    (said,) = words(undecided(COLUMNS, cells // 50 + 1))
    assert said == f"{cells // 50 + 1} of {cells} sabotaged ports undecided, where 2% are allowed"


def test_no_healthy_port_may_be_undecided() -> None:
    assert words(undecided((HEALTHY,), 1)) == [f"1 of {len(EDITS)} healthy ports undecided, where 0% are allowed"]


def test_a_cell_without_a_word_is_refused() -> None:
    table = good()
    del table["lstm"]["mask off"]
    assert words(table) == ["1 cells of cells.toml have no word: lstm, mask off ..."]
    del table["unet"][HEALTHY]
    assert "unet: no word on the healthy port" in words(table)
    assert "44 healthy scripts, where 45 are wanted" in words(table)
    assert len(words({})) == 48  # 45 scripts, their number, the cells and their number


def test_fewer_than_300_cells_are_refused_though_no_more_are_asked_for() -> None:
    edits = {script: dict(list(row.items())[:7]) for script, row in EDITS.items()}
    table = {
        script: {column: row for column, row in columns.items() if column in (HEALTHY, *edits[script])}
        for script, columns in good().items()
    }
    (said,) = matrix.failed_bars(table, edits)
    assert said == f"{sum(map(len, edits.values()))} sabotaged ports, where 300 are wanted"


@pytest.mark.parametrize(
    ("column", "before", "now", "is_worse"),
    [
        ("step deleted", WRONG, HOLDS, True),
        ("step deleted", WRONG, UNDECIDED, True),
        ("step deleted", UNDECIDED, HOLDS, True),
        ("step deleted", UNDECIDED, WRONG, False),
        ("step deleted", HOLDS, HOLDS, False),
        (HEALTHY, HOLDS, UNDECIDED, True),
        (HEALTHY, UNDECIDED, WRONG, True),
        (HEALTHY, WRONG, HOLDS, False),
    ],
)
def test_a_change_for_the_worse_is_told(column: str, before: str, now: str, is_worse: bool) -> None:
    stored, found = {"mlp": {column: Row(before)}}, {"mlp": {column: Row(now)}}
    assert list(matrix.worse(stored, found)) == [f"mlp, {column}: {before} -> {now}"] * is_worse
    assert list(matrix.worse({}, found)) == []


def test_what_is_not_run_counts_as_stored_and_what_is_no_longer_asked_for_does_not() -> None:
    stored = {"mlp": {HEALTHY: Row(HOLDS), "mask off": Row(HOLDS), "rate x3": Row(HOLDS)}}
    table = matrix.merged(stored, {"mlp": {"rate x3": Row(WRONG)}}, EDITS)
    assert table == {"mlp": {HEALTHY: Row(HOLDS), "rate x3": Row(WRONG)}}


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    matrix.write(good(), tmp_path / "status.json")
    assert matrix.read(tmp_path / "status.json") == good()
    assert matrix.read(tmp_path / "none.json") == {}
    assert "| mlp | holds | ✗ loss, step 1 |" in matrix.markdown(good())
    assert matrix.summary(good()).splitlines()[2].split()[-4:] == ["19", "19", "0", "0"]


# What is done wrong.


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ('"stp deleted" = ["a", "b"]', "there is no column"),
        ('"step deleted" = ["a"]', "two different texts"),
        ('"step deleted" = ["a", "a"]', "two different texts"),
    ],
)
def test_a_wrong_row_is_refused(tmp_path: Path, rows: str, error: str) -> None:
    path = tmp_path / "cells.toml"
    path.write_text(f"ranks = {{}}\n[cells.mlp]\n{rows}\n")
    with pytest.raises(TableError, match=error):
        matrix.load(path)


@pytest.mark.parametrize("text", ["pass", "step(); step()"])
def test_an_edit_that_fits_nowhere_or_twice_is_refused(text: str) -> None:
    assert matrix.sabotaged("step()", ("step()", "pass"), "here") == "pass"
    with pytest.raises(TableError, match="here: 'step"):
        matrix.sabotaged(text, ("step()", "pass"), "here")


def test_every_script_has_a_row_of_its_own() -> None:
    assert {path.stem for path in matrix.SCRIPTS.iterdir() if path.suffix == ".py"} == {*EDITS} >= {*RANKS}
    assert len(EDITS) >= matrix.LEAST_SCRIPTS
    assert sum(map(len, EDITS.values())) >= matrix.LEAST_CELLS
    assert {column for row in EDITS.values() for column in row} == {*COLUMNS}


def test_every_edit_fits_the_converted_script_once_and_leaves_python(tmp_path: Path) -> None:
    convert_tree(matrix.SCRIPTS, tmp_path / "npu")
    for script, row in EDITS.items():
        text = (tmp_path / "npu" / f"{script}.py").read_text(encoding="utf-8")
        assert "npu" in text and "cuda" not in text
        for column, edit in row.items():
            wrong = matrix.sabotaged(text, edit, f"{script}, {column}")
            assert ast.dump(ast.parse(wrong)) != ast.dump(ast.parse(text)), (script, column)


# Whether it acts.


def recorded(path: Path, losses: list[float], rate: float = 0.1, printed: str = "accuracy 97 %") -> Recording:
    """A run of one process with these losses, an optimizer step after each."""
    events: list[dict[str, object]] = [{"kind": "process", "pid": 1, "name": "Main", "rank": None, "world": None}]
    for step, value in enumerate(losses):
        events.append(
            {"kind": "loss", "site": "a.py:1", "by": "backward", "value": value, "device": "npu", "launches": 1}
        )
        events.append(
            {"kind": "step", "step": step, "device": "npu", "gradient": "npu", "launches": 1, "seconds": None}
        )
        if not step:
            events.append({"kind": "settings", "optimizer": 0, "step": 0, "groups": [{"lr": rate}]})
    folder = path / recording.PROCESSES / "1"
    folder.mkdir(parents=True)
    (folder / recording.JOURNAL).write_text("".join(json.dumps(event) + "\n" for event in events))
    recording.Result(recording.COMMAND, data={"recording": recording.VERSION}).write(path / recording.HEAD)
    (path / recording.STDOUT).write_text(printed)
    return Recording.from_directory(path)


@pytest.mark.parametrize(
    ("losses", "rate", "printed", "said"),
    [
        ([3.0, 2.0, 1.0], 0.1, "accuracy 97 %", ""),
        ([3.0, 2.0, 1.0 + 5e-8], 0.1, "accuracy 97 %", ""),  # less than rounding
        ([3.0, 2.0 + 1e-6, 1.0], 0.1, "accuracy 97 %", "the loss changes from step 1 on, by 5e-07 at most"),
        ([3.0, 2.0, float("nan")], 0.1, "accuracy 97 %", "the loss changes from step 2 on, by inf at most"),
        ([3.0, 2.0], 0.1, "accuracy 97 %", "2 steps instead of 3"),
        ([3.0, 2.0, 1.0], 0.11, "accuracy 97 %", "a setting of the optimizer changes at step 0"),
        ([3.0, 2.0, 1.0], 0.1, "accuracy 98 %", "what it prints"),
    ],
)
def test_what_a_sabotage_changes(tmp_path: Path, losses: list[float], rate: float, printed: str, said: str) -> None:
    healthy = recorded(tmp_path / "healthy", [3.0, 2.0, 1.0], printed="accuracy 97 %")
    assert acting.change(healthy, recorded(tmp_path / "port", losses, rate, printed)) == said


def told(kind: str, **fields: object) -> dict[str, object]:
    return {"kind": kind, **fields}


@pytest.mark.parametrize(
    ("healthy", "port", "said"),
    [
        (
            [],
            [told("start", tensor="fc.weight", dtype="float32", difference=0.5)],
            "fc.weight starts from other numbers",
        ),
        (
            [told("parameters", optimizer=0, step=0, names=["a", "b"], sizes=[1, 1], devices=["npu", "npu"])],
            [told("parameters", optimizer=0, step=0, names=["a", "b"], sizes=[1, 1], devices=["cpu", "npu"])],
            "parameters of optimizer 0 are on other devices",
        ),
        (
            [told("evaluation", site="a.py:9", step=9, call=0, modules=3, training=0, norms=[1.0])],
            [told("evaluation", site="a.py:9", step=9, call=0, modules=3, training=3, norms=[1.0])],
            "an evaluation changes after step 9",
        ),
        (["0.5"], ["0.7"], "the file scores.csv"),
        (["0.5"], ["0.5"], ""),
    ],
)
def test_what_a_sabotage_changes_outside_of_steps(
    tmp_path: Path, healthy: list[object], port: list[object], said: str
) -> None:
    sides = []
    for name, rows in (("healthy", healthy), ("port", port)):
        side = recorded(tmp_path / name, [3.0, 2.0])
        (tmp_path / name / "files").mkdir()
        if rows and isinstance(rows[0], str):
            (tmp_path / name / "files" / "scores.csv").write_text(f"score\n{rows[0]}\n")
        else:
            with open(tmp_path / name / recording.PROCESSES / "1" / recording.JOURNAL, "a") as journal:
                journal.writelines(json.dumps(row) + "\n" for row in rows)
            side = Recording.from_directory(tmp_path / name)
        sides.append(side)
    assert acting.change(*sides) == said


# What was found.


def test_the_stored_table_keeps_every_bar() -> None:
    table = matrix.read()
    assert words(table) == []
    assert sum(len(columns) for columns in table.values()) >= 180  # with the 20 healthy ones
    assert {row.word for columns in table.values() for row in columns.values()} <= {HOLDS, UNDECIDED, WRONG}
