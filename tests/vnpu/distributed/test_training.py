"""Training on several ranks of the virtual NPU under torchrun, against one process with the whole batch."""

from __future__ import annotations

import pytest
from job import section_outcomes
from training_worker import SECTIONS

# Ten seconds of imports for each rank on a busy machine: four of them are for `make distributed`.
SIZES = [2, pytest.param(4, marks=pytest.mark.slow)]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    return section_outcomes("training_worker.py", request.param, tmp_path_factory.mktemp("training"))


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("outcomes", SIZES, indirect=True, scope="module")
def test_training_equals_one_process_with_the_whole_batch(
    outcomes: dict[str, list[str]], section: str
) -> None:
    assert outcomes[section] == [""] * len(outcomes[section]), "\n".join(outcomes[section])
