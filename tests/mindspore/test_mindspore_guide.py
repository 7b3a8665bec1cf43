"""The guide's statements of training in MindSpore: rates, optimizers and schedules of one's own, auxiliary results. Its mixed
precision is in test_mindspore_cases.py, its data parallel training in test_mindspore_ranks.py."""

from __future__ import annotations

from pathlib import Path

from running import answers, clean, run


def test_what_the_guide_says(tmp_path: Path) -> None:
    result = run("guide.py", cwd=tmp_path)
    clean(result)
    said = {each["case"]: each.get("said", each) for each in answers(result)}
    # Sums of three numbers, a weight of which a rate times that is taken, divided by the rate: in fp32.
    assert max(said["rate_in_a_graph"]) < 1e-5, said
    assert said["own_optimizer"] < 1e-7 and said["own_schedule"] < 1e-8, said
    assert len(said["schedules"]) == 5 and max(said["schedules"].values()) < 1e-7, said
    assert said["aux_in_a_graph"] < 1e-6, said
