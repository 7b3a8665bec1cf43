"""What cannot be on the virtual NPU ends with a sentence that names it: not by a signal, at once or at the exit."""

from __future__ import annotations

from typing import Any

import pytest
from running import answers, run

GRAPHS, BINARY, IMAGES = (
    "virtual NPU has no graph compiler",
    "compiled for the AI Core cannot run on the virtual NPU",
    "virtual NPU does not model the chip's image units (dvpp)",
)
SENTENCES = {
    "GE": GRAPHS,
    "graph O2": GRAPHS,
    "O1": BINARY,
    "graph O1": BINARY,
    "cache": "aclnnReshapeAndCacheGetWorkspaceSize not in",
    "boosted": "aclnnPagedAttentionGetWorkspaceSize not in",
    "symmetric memory": "symmetric_memory_manager",
    "dvpp": IMAGES,
    "dvpp pipeline": IMAGES,
    "om": "aclmdlLoadFromFile is not offered. An .om holds kernels compiled for the AI Core",
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    result = run("impossible.py", cwd=tmp_path_factory.mktemp("impossible"))
    assert result.returncode == 0, result.stderr[-1500:]
    return {each["case"]: each for each in answers(result)}


@pytest.mark.parametrize("what", SENTENCES)
def test_what_cannot_be_ends_with_a_sentence(said: dict[str, Any], what: str) -> None:
    found = said[what]
    assert found["status"] == 0, (found["status"], found["said"][-1500:])
    assert "REFUSED" in found["said"] and SENTENCES[what] in found["said"], found["said"][-1500:]
