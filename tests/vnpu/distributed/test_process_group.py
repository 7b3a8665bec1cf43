"""torch.distributed on the virtual NPU: every collective and type, under torchrun with 2 and 4 ranks."""

from __future__ import annotations

import pytest
from group_worker import SECTIONS
from job import section_outcomes

SIZES = [2, 4]


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
