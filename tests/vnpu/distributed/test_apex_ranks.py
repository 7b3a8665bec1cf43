"""apex's stand-in on two ranks of the virtual NPU under torchrun, against one process with the whole batch."""

from __future__ import annotations

import pytest
from apex_worker import SECTIONS
from job import section_outcomes

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return section_outcomes("apex_worker.py", 2, tmp_path_factory.mktemp("apex"))


@pytest.mark.parametrize("section", SECTIONS)
def test_training_equals_one_process_with_the_whole_batch(
    outcomes: dict[str, list[str]], section: str
) -> None:
    assert outcomes[section] == [""] * len(outcomes[section]), "\n".join(outcomes[section])
