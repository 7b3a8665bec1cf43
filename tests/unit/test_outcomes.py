"""Files and printed numbers of a training, judged by another run of the original."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import port_results
import pytest

from torchport.findings import Severity
from torchport.port import outcomes, runs
from torchport.port.plan import NPU, REFERENCE
from torchport.results.codec import from_json
from torchport.results.comparison import Comparison
from torchport.results.port import FileRow


class _Plan:
    def __init__(self, out: Path) -> None:
        self.out = out

    def kept_in(self, step: str) -> Path:
        return self.out / step


class _Quiet:
    def note(self, text: str) -> None: ...


def leave(folder: Path, scores: dict[str, Any], output: str = "done 1.5") -> Path:
    (folder / runs.FILES).mkdir(parents=True)
    (folder / runs.FILES / "scores.json").write_text(json.dumps(scores))
    (folder / "stdout.txt").write_text(output)
    return folder


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(port: dict[str, Any], again: dict[str, Any] | int, **changes: Any) -> list[FileRow]:
        original = SAME | changes.pop("reference", {})
        leave(tmp_path / REFERENCE, original)
        leave(tmp_path / NPU, port, changes.pop("output", "done 1.5"))
        (tmp_path / "compare").mkdir()
        more_draws = {name: changes.pop(name) for name in [*changes] if name.startswith("draw_")}

        def run(plan: Any, aside: Path, progress: Any, formats: Any, draw: int) -> Any:
            assert aside == tmp_path / "compare" / f"again-{draw or 'exact'}"
            if not isinstance(again, int):
                exact, printed = original | more_draws.get("draw_0", {}), more_draws.get("draw_output", "done 1.5")
                left, said = (more_draws.get(f"draw_{draw}", again), "done 1.5") if draw else (exact, printed)
                leave(tmp_path / f"rerun-{draw}", left, said).rename(aside / "rerun")
                for path in (aside / "rerun").iterdir():
                    path.rename(aside / path.name)
            return type("Ended", (), {"status": again if isinstance(again, int) else 0})

        monkeypatch.setattr(outcomes.controls, "run_to_the_end", run)
        more = {"tolerance": {"dtype": "float32", "given": None}} | changes
        data = from_json(Comparison, port_results.comparison(**more))
        rows = outcomes.compare_outcomes(tmp_path / REFERENCE, tmp_path / NPU, outcomes.choose_tolerance(data))
        return outcomes.judge_outcomes(_Plan(tmp_path), tmp_path / "compare", rows, data, _Quiet(), {})  # type: ignore[arg-type]

    return make


SAME = {"weight": 1.0, "bias": 0.5, "started": "12:01"}


def said(rows: list[FileRow], *, alone: bool = False) -> list[tuple[Severity, str]]:
    return [(finding.severity, finding.message) for finding in outcomes.report_outcomes(rows, alone=alone)]


def test_a_number_that_rounding_does_not_explain(judge: Any) -> None:
    ((severity, text),) = said(judge(SAME | {"weight": 1.05}, SAME | {"weight": 1.0001}))
    assert (severity, text) == (Severity.ERROR, "the file scores.json differs: largest difference in weight: 4.8e-02")


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, True),
        ({"tolerance": {"dtype": "bfloat16", "given": None}}, False),
        ({"yardstick": None}, False),
        ({"forced": {"steps": 20}}, False),
    ],
)
def test_numbers_that_only_rounding_of_float32_moves_are_compared_closely(
    judge: Any, changes: dict[str, Any], refused: bool
) -> None:
    """An R2 of 0.958 instead of 0.960; half precision and chaos may move it so far."""
    assert bool(said(judge(SAME | {"weight": 0.998}, SAME | {"weight": 1.00001}, **changes))) is refused


def test_what_the_original_moves_as_far_is_allowed(judge: Any) -> None:
    assert said(judge(SAME | {"weight": 0.998}, SAME | {"weight": 1.0002})) == []


def test_the_number_of_one_name_says_nothing_of_another(judge: Any) -> None:
    """The bias is rounding alone, in the original as well; the weight is not."""
    ((_, text),) = said(judge(SAME | {"weight": 1.05, "bias": 0.9}, SAME | {"bias": 0.3}))
    assert "largest difference in weight" in text


def test_a_larger_difference_that_is_allowed_hides_none_that_comes_later(judge: Any) -> None:
    ((_, text),) = said(judge(SAME | {"weight": 1.9, "bias": 0.55}, SAME | {"weight": 1.4}))
    assert text == "the file scores.json differs: largest difference in bias: 9.1e-02"


def test_what_rounding_moves_as_far_is_equal(judge: Any) -> None:
    assert said(judge(SAME | {"bias": 0.9}, SAME | {"bias": 0.3})) == []


def test_what_differs_in_words_between_two_runs_of_the_original(judge: Any) -> None:
    assert said(judge(SAME | {"started": "host-7"}, SAME | {"started": "host-3"})) == []


def test_a_number_that_the_original_does_not_repeat_is_not_judged(judge: Any) -> None:
    """An environment that is reset without a seed."""
    rows = judge(SAME | {"weight": 1.4}, SAME | {"weight": 1.001}, draw_0={"weight": 1.2})
    assert said(rows) == []
    (row,) = [row for row in rows if row.name == "scores.json"]
    assert row.equal is None
    assert row.note.endswith("the original, run again as it was, has other numbers there itself")


@pytest.mark.parametrize(("again", "refused"), [("score 41", 0), ("score 37", 1), ("other 41", 0)])
def test_a_printed_number_that_the_original_does_not_repeat(judge: Any, again: str, refused: int) -> None:
    rows = judge(SAME, SAME, output="done 2.5", draw_output=again.replace("score", "done").replace("37", "1.5"))
    assert len(said(rows)) == refused


def test_what_one_of_three_runs_of_the_original_moves_as_far(judge: Any) -> None:
    """A score of few samples: in most runs none of them is on an edge."""
    assert said(judge(SAME | {"weight": 0.98}, SAME, draw_3=SAME | {"weight": 1.01})) == []


@pytest.mark.parametrize(
    ("dtype", "name", "refused"), [("float16", "val_acc", 0), ("float16", "size", 1), ("float32", "val_acc", 1)]
)
def test_a_share_of_samples_in_a_file(judge: Any, dtype: str, name: str, refused: int, tmp_path: Path) -> None:
    """One sample of 96, in half precision."""
    rows = judge(
        SAME | {name: 97.91666666666667},
        SAME | {name: 96.875},
        reference={name: 96.875},
        tolerance={"dtype": dtype, "given": None},
    )
    assert len(said(rows)) == refused


def test_a_port_that_died_is_not_told_of_each_file_that_it_did_not_write() -> None:
    missing = FileRow("model.pt", "checkpoint", "1 kB", "", False, None, "only the original's run wrote it")
    other = FileRow("log.txt", "text", "2 lines", "1 lines", False, 1.0, "one line more")
    assert len([*outcomes.report_outcomes([missing, other], alone=False)]) == 2
    (finding,) = outcomes.report_outcomes([missing, other], alone=False, died=True)
    assert "log.txt" in finding.message


def test_a_key_that_the_port_does_not_leave(judge: Any) -> None:
    assert said(judge({"weight": 1.0, "started": "12:01"}, SAME))


def test_a_printed_number(judge: Any) -> None:
    ((severity, text),) = said(judge(SAME, SAME, output="done 1.9"))
    assert severity is Severity.ERROR
    assert text == "what is printed differs: 1.9 against 1.5 in the line 'done 1.5'"


def test_equal_runs_need_no_other_run(judge: Any) -> None:
    rows = judge(SAME, 1)
    assert [row.equal for row in rows] == [True, True]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"chance": ["dropout"]}, "draw numbers"),
        ({"tolerance": {"dtype": "float32", "given": 0.1}}, "a tolerance of 0.1 was given"),
        ({}, "run again, failed"),
    ],
)
def test_what_cannot_be_judged_is_said(judge: Any, changes: dict[str, Any], why: str) -> None:
    rows = judge(SAME | {"weight": 1.05}, 1, **changes)
    assert rows[0].equal is None
    assert why in rows[0].note


def test_other_files_speak_against_a_port_that_leaves_nothing_else() -> None:
    rows = [FileRow("a.png", "image", "3 x 3", "4 x 4", False, None, "3 x 3 against 4 x 4 pixels")]
    assert [severity for severity, _ in said(rows)] == [Severity.INFO]
    assert [severity for severity, _ in said(rows, alone=True)] == [Severity.ERROR]


@pytest.mark.parametrize(("allowed", "tolerance"), [(1e-6, 1e-4), (3e-5, 3e-4), (1e-2, 1e-3), (float("inf"), 1e-3)])
def test_the_last_bound_of_the_losses_says_how_closely_numbers_are_compared(allowed: float, tolerance: float) -> None:
    data = port_results.comparison(port_results.curve(allowed=[1e-5] * 19 + [allowed]))
    data |= {"tolerance": {"dtype": "float32", "given": None}}
    assert outcomes.choose_tolerance(from_json(Comparison, data)) == pytest.approx(tolerance)
