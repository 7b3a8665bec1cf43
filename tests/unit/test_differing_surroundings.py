"""Differences from before anything was computed are said first, and speak against nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recordings import losses, write

from torchport.compare import compare_recordings
from torchport.compare.surroundings import list_differences
from torchport.record.recording import Recording

CURVE = [2.3 * 0.97**step for step in range(30)]
ENVIRONMENT = {
    "versions": {"python": "3.11.7", "torch": "2.13.0+cpu", "numpy": "2.4.6"},
    "machine": "Linux 6.1 x86_64",
    "variables": {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
}
SURROUNDINGS = {
    "flags": {"torch.get_num_threads": 1, "torch.backends.cudnn.allow_tf32": True},
    "packages": {"torch": "2.13.0+cpu", "transformers": "5.24.0"},
}


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Recording]:
    count = iter(range(100))

    def make(change: Callable[[dict[str, Any], dict[str, Any]], object] | None = None, scale: float = 1.0) -> Recording:
        environment, surroundings = copy.deepcopy(ENVIRONMENT), copy.deepcopy(SURROUNDINGS)
        if change is not None:
            change(environment, surroundings)
        folder = tmp_path / str(next(count))
        folder.mkdir()
        events = [{"kind": "environment", **environment}, {"kind": "surroundings", **surroundings}]
        return write(folder, [*events, *losses([scale * loss for loss in CURVE])])

    return make


@pytest.mark.parametrize(
    "change",
    [
        lambda environment, surroundings: None,
        lambda environment, surroundings: environment["variables"].update(
            CUDA_VISIBLE_DEVICES="0",
            ASCEND_HOME_PATH="/cann",
            TORCH_DEVICE_BACKEND_AUTOLOAD="1",
            HCCL_IF_IP="1.2.3.4",
            TORCH_HCCL_ASYNC_ERROR_HANDLING="1",
        ),
        lambda environment, surroundings: environment["versions"].update(torch_npu="2.13.0"),
        lambda environment, surroundings: surroundings["packages"].update(torch="2.13.0+cu126", torch_npu="2.13.0"),
        lambda environment, surroundings: environment.update(machine="Linux 5.10-other x86_64"),
        lambda environment, surroundings: surroundings["flags"].update({"torch.of_a_later_release": True}),
    ],
)
def test_what_differs_between_devices_is_no_difference(record: Callable[..., Recording], change: Any) -> None:
    result = compare_recordings(record(), record(change))
    assert result.findings == ()
    assert result.data.verdict == "holds"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda environment, surroundings: surroundings["packages"].update(transformers="4.9.0"),
            "transformers 5.24.0 against 4.9.0",
        ),
        (
            lambda environment, surroundings: environment["versions"].update(numpy="1.26.4"),
            "numpy 2.4.6 against 1.26.4",
        ),
        (
            lambda environment, surroundings: surroundings["flags"].update({"torch.get_num_threads": 8}),
            "torch.get_num_threads 1 against 8",
        ),
        (
            lambda environment, surroundings: environment["variables"].update(MKL_CBWR="COMPATIBLE"),
            "MKL_CBWR not set against COMPATIBLE",
        ),
        (
            lambda environment, surroundings: environment.update(machine="Linux 5.10 aarch64"),
            "the machine's architecture x86_64 against aarch64",
        ),
    ],
)
def test_a_difference_is_said_first(record: Callable[..., Recording], change: Any, words: str) -> None:
    equal = compare_recordings(record(), record(change))
    assert [finding.code for finding in equal.findings] == ["TP367"]
    assert words in equal.findings[0].message
    assert equal.data.verdict == "holds"
    apart = compare_recordings(record(), record(change, 1.5))
    assert [finding.code for finding in apart.findings] == ["TP367", "TP301"]
    assert apart.data.verdict == "does not hold"
    assert "loss" in apart.data.reason


def test_an_earlier_recording_has_no_surroundings(record: Callable[..., Recording]) -> None:
    assert list_differences(record(lambda environment, surroundings: surroundings.clear()), record()) == []
