"""Dry ranks: they agree on their collectives and exchange no results."""

from __future__ import annotations

from pathlib import Path

from job import torchrun

from torchport.predict.timeline import read_timeline

WORKER = Path(__file__).with_name("dry_worker.py")


def results(output: str) -> list[str]:
    return sorted(line[line.index("RESULT") :] for line in output.splitlines() if "RESULT" in line)


def test_results_move_only_in_exact_runs_and_sizes_in_both(tmp_path: Path) -> None:
    objects = "[{'rank': 0}, {'rank': 1}]"
    exact = results(torchrun(WORKER, 2))
    assert exact == [f"RESULT {rank} 30.0 [5, 6] {objects}" for rank in range(2)]
    output = torchrun(WORKER, 2, VNPU_MODE="dry", VNPU_TIMELINE=str(tmp_path / "log-%p"))
    assert results(output) == [f"RESULT {rank} 0.0 [5, 6] {objects}" for rank in range(2)]
    logs = [log for log in map(read_timeline, tmp_path.glob("log-*")) if any(task.ranks == 2 for task in log.tasks)]
    assert sorted(log.rank for log in logs) == [0, 1]
    ends = []
    for log in logs:
        reduces = [task for task in log.tasks if task.name == "HcclAllReduce" and task.bytes > 4 << 20]
        assert len(reduces) >= 2 and all(task.virtual_time > 10_000 for task in reduces)
        ends.append([task.virtual_began for task in reduces])
    # On the virtual clock a collective begins on all ranks at the same time.
    assert ends[0] == ends[1]
