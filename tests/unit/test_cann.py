"""The version of CANN: which one belongs to which torch_npu, and what VNPU_CANN may say."""

from __future__ import annotations

import pytest

from torchport.errors import TorchportError
from torchport.vnpu import cann, wheels


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def belonging(torch_npu: str) -> str:
    """What the table has for that release: the row of the newest one that is not newer."""
    rows = cann.load_cann_table()["torch_npu"]
    return rows[max((name for name in rows if numbers(name) <= numbers(torch_npu)), key=numbers)]


def test_the_default_belongs_to_the_torch_npu_that_is_pinned() -> None:
    assert belonging(wheels.SUPPORTED) == cann.read_default_version()
    assert belonging("2.8.0") == "8.3.RC1" != cann.read_default_version()  # the table does tell releases apart


@pytest.mark.parametrize(
    "version", ["9.1.0", "8.3.RC1", "8.5.0", "8.5.0.alpha003", "9.0.0-beta.2", "9.0.0.beta2", "10.0.0"]
)
def test_versions(version: str) -> None:
    assert cann.select_version({"VNPU_CANN": version}) == version


def test_nothing_and_no_word_mean_the_default() -> None:
    assert cann.select_version({}) == cann.select_version({"VNPU_CANN": ""}) == cann.read_default_version()


@pytest.mark.parametrize(
    "version", ["9.1", "9", "latest", "9.1.0.", "9.1.0.gamma1", "v9.1.0", "9.1.0 ", "8.3.RC", "9..0", "9.1.0.1"]
)
def test_what_is_no_version(version: str) -> None:
    with pytest.raises(TorchportError, match="is not a version of CANN") as refused:
        cann.select_version({"VNPU_CANN": version})
    assert refused.value.hint is not None and cann.read_default_version() in refused.value.hint


@pytest.mark.parametrize("version", ["8.2.RC1", "8.1.RC1", "7.0.0"])
def test_versions_that_this_torch_npu_does_not_run_on(version: str) -> None:
    with pytest.raises(TorchportError, match="is too old"):
        cann.select_version({"VNPU_CANN": version})
