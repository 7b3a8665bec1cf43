"""Which further runs a comparison asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import write
from training_events import RESTARTS, faulty, noise, run, windows

from torchport.compare import Forced
from torchport.port import judging
from torchport.record.recording import Recording
from torchport.results.port import ControlRun

Runs = dict[str, list[Any]]


class _Plan:
    tolerance = None
    operators = False

    def kept_in(self, step: str) -> Path:
        return Path(step)


class _Quiet:
    def note(self, text: str) -> None: ...


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def folder(name: str) -> Path:
        (tmp_path / name).mkdir()
        return tmp_path / name

    def make(port: Any, control: Any, first: Any = (), **more: Any) -> tuple[str, list[str]]:
        asked: list[str] = []
        records: dict[str, Recording] = {
            name: write(folder(name), events) for name, events in {"npu": port, "control": control, **more}.items()
        }
        reference = write(folder("reference"), run(*first, steps=60))
        records["quiet"] = write(folder("quiet"), rounding_later(1e-7))

        def noisy(plan: Any, aside: Any, progress: Any, formats: Any, steps: int, draw: int) -> Recording:
            asked.append(f"draw {draw}, {steps} steps")
            return records.get(f"draw_{draw}") or records["quiet"]

        def forced(*_: Any) -> Forced:
            asked.append("forced")
            return Forced(reference, records["forced"], records["forced_control"])

        monkeypatch.setattr(judging.controls, "read_control_recording", lambda *_: records["control"])
        monkeypatch.setattr(judging.controls, "run_with_noise", noisy)
        monkeypatch.setattr(judging.controls, "run_forced_steps", forced)
        run_ = ControlRun((), 0, 20, 1.0, "", (), {}, faults=True)
        aside = folder("compare")
        found = judging.judge_runs(_Plan(), aside, reference, records["npu"], run_, _Quiet())  # type: ignore[arg-type]
        return found.data.verdict, asked

    return make


DRAWS = [f"draw {draw}, 20 steps" for draw in (2, 3, 4)]
LATE = [f"draw {draw}, 41 steps" for draw in (2, 3, 4)]


def larger(step: int, *_: int) -> float:
    return 1 + (3e-3 if step >= 40 else 0.0)


def rounding_later(size: float) -> Any:
    return run(*RESTARTS, steps=60, loss=lambda step: 1 + (size if step >= 40 else 1e-7) * (-1) ** step)


def test_equal_runs_ask_for_nothing(judge: Any) -> None:
    assert judge(windows(1e-7), faulty(1e-7, 1.2)) == ("holds", [])


def test_a_fault_in_the_control_runs_steps_asks_for_nothing(judge: Any) -> None:
    port = windows(1e-7, gradient=lambda step, number: 1.06 if step == 3 else 1.0)
    assert judge(port, faulty(1e-7, 1.2)) == ("does not hold", [])


def test_a_small_fault_asks_for_noise_of_other_draws(judge: Any) -> None:
    port = windows(1e-7, gradient=lambda step, number: 1.01 if step in (3, 4, 5) else 1.0)
    assert judge(port, faulty(1e-7, 1.2)) == ("does not hold", DRAWS)


def test_a_small_difference_that_noise_of_another_draw_makes_too(judge: Any) -> None:
    port = windows(1e-7, gradient=lambda step, number: 1.01 if step in (3, 4, 5) else 1.0)
    moved = run(*RESTARTS, steps=60, gradient=lambda step, number: 1.002 if step == 2 else 1 + 1e-7 * (-1) ** step)
    found = judge(port, faulty(1e-7, 1.2), draw_3=moved, forced=run(device="npu", steps=60), forced_control=faulty())
    assert found == ("holds", [*DRAWS[:2], "forced"])  # so much noise would hide a fault of 1 %


def test_a_small_fault_beside_a_setting_asks_for_nothing(judge: Any) -> None:
    settings = [{"kind": "settings", "optimizer": 0, "step": 0, "groups": [{"lr": rate}]} for rate in (0.1, 0.11)]
    port = run(settings[1], *RESTARTS, device="npu", steps=60, gradient=lambda step, number: 1 + 1e-2 * (step > 3))
    assert judge(port, faulty(1e-7, 1.2), first=[settings[0]]) == ("does not hold", [])


HALF = {"kind": "precision", "dtype": "float16"}


@pytest.mark.parametrize(("size", "word"), [(1e-4, "does not hold"), (3e-3, "holds")])
def test_in_half_precision_an_early_difference_is_measured_too(judge: Any, size: float, word: str) -> None:
    """In one step of many, rounding puts an activation to the other side of a ReLU; the control run had no such step."""
    now_and_then = lambda step, number: 1 + size * (step == 27 and number == 2)  # noqa: E731
    found = judge(
        run(
            HALF, *RESTARTS, device="npu", steps=60, gradient=lambda step, number: 1 + 0.01 * ((step, number) == (3, 2))
        ),
        faulty(1e-7, 1.2, gradient=0.05),
        draw_1=run(HALF, *RESTARTS, steps=60, gradient=now_and_then),
        first=[HALF],
    )
    assert found == (word, ["draw 1, 200 steps", *DRAWS] if word != "holds" else ["draw 1, 200 steps"])


@pytest.mark.parametrize(("size", "word"), [(1e-7, "does not hold"), (3e-3, "holds")])
def test_a_later_difference_is_measured_there(judge: Any, size: float, word: str) -> None:
    found = judge(windows(1e-7, loss=larger), faulty(1e-7, 1.2), draw_1=rounding_later(size))
    assert found == (word, ["draw 1, 200 steps", *(LATE if word != "holds" else ())])


@pytest.mark.parametrize(("size", "word"), [(1e-7, "does not hold"), (3e-3, "holds")])
def test_so_it_is_where_each_step_began_from_the_originals_state(judge: Any, size: float, word: str) -> None:
    """The control run has drowned the faults, so steps are forced; what differs later in the run itself is measured."""
    quiet = noise(1e-7)
    port = run(*RESTARTS, device="npu", steps=60, loss=lambda step: larger(step) * quiet(step))
    found = judge(
        port,
        faulty(1e-7, 1.2, gradient=0.0),
        draw_1=rounding_later(size),
        forced=run(device="npu", steps=60, loss=quiet),
        forced_control=faulty(),
    )
    assert found == (word, ["forced", "draw 1, 200 steps", *(LATE if word != "holds" else ())])


def test_noise_that_hides_small_faults_later_asks_for_forced_steps(judge: Any) -> None:
    """Half precision, a router: the longer run with noise is the yardstick, and it drowns the fault of one layer."""
    rough = run(
        *RESTARTS,
        steps=60,
        loss=lambda step: 1 + (3e-3 if step >= 40 else 1e-7) * (-1) ** step,
        gradient=lambda step, number: 1 + 2e-2 * (-1) ** (step + number),
    )
    found = judge(
        windows(1e-7, loss=larger, gradient=lambda step, number: 1 + 1e-2 * (-1) ** step * (step >= 40)),
        faulty(1e-7, 1.2),
        draw_1=rough,
        forced=run(device="npu", steps=60),
        forced_control=faulty(),
    )
    assert found == ("holds", ["draw 1, 200 steps", "forced"])
