"""Jobs under torchrun, section by section: every collective and type of torch.distributed, operators that communicate
while they run, and training, against one process with the whole batch: torch's own ways, and apex's.
"""

from __future__ import annotations

import fcntl
import json
import os

import apex_worker
import group_worker
import operators_worker
import pytest
import training_worker
from job import section_outcomes

# Ten seconds of imports for each rank on a busy machine: for `make distributed`.
SLOW = pytest.mark.distributed
# The last: VNPU_CANN. Before 9.0.0 torch_npu sends and receives batches with HcclBatchSendRecv, from it on in a group.
JOBS = {
    (group_worker, 2, ""): (),
    (group_worker, 2, "8.3.RC1"): SLOW,
    (group_worker, 4, ""): SLOW,
    (operators_worker, 2, ""): (),
    (operators_worker, 4, ""): SLOW,
    (training_worker, 2, ""): (),
    (training_worker, 4, ""): SLOW,
    (apex_worker, 2, ""): (),
}
CASES = [
    pytest.param(
        job, section, marks=marks, id=f"{job[0].__name__}-{job[1]}{job[2] and '-' + job[2]}-{section}"
    )  # job: one object for a fixture
    for job, marks in JOBS.items()
    for section in job[0].SECTIONS
]


@pytest.fixture
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What each rank says of each section. A job runs once for all of pytest's processes: the first one leaves this in
    the folder that they share, the others wait for it."""
    worker, size, version = request.param
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    said = shared / f"{worker.__name__}-{size}-{version}.json"
    with said.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            folder = tmp_path_factory.mktemp(worker.__name__)
            found = section_outcomes(f"{worker.__name__}.py", size, folder, VNPU_CANN=version)
            said.write_text(json.dumps(found), encoding="utf-8")
        outcomes: dict[str, list[str]] = json.loads(said.read_text(encoding="utf-8"))
        return outcomes


@pytest.mark.parametrize(("outcomes", "section"), CASES, indirect=["outcomes"])
def test_every_rank_succeeds(outcomes: dict[str, list[str]], section: str) -> None:
    assert outcomes[section] == [""] * len(outcomes[section]), "\n".join(outcomes[section])
