"""torch.distributed on the virtual NPU: every collective and type, under torchrun with 2 and 4 ranks."""

from __future__ import annotations

import pytest
from group_worker import SECTIONS
from job import section_outcomes

# Ten seconds of imports for each rank on a busy machine: four of them are for `make distributed`.
SIZES = [2, pytest.param(4, marks=pytest.mark.slow)]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    return section_outcomes("group_worker.py", request.param, tmp_path_factory.mktemp("group"))


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("outcomes", SIZES, indirect=True, scope="module")
def test_collective_agrees_with_the_reference_on_every_rank(
    outcomes: dict[str, list[str]], section: str
) -> None:
    assert outcomes[section] == [""] * len(outcomes[section]), "\n".join(outcomes[section])
