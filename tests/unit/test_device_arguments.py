"""Arguments that name a device: what the port is given for them."""

from __future__ import annotations

import pytest

from torchport.port.runs import name_npu


@pytest.mark.parametrize(
    ("word", "given"),
    [
        ("cuda", "npu"),
        ("cuda:1", "npu:1"),
        ("--device=cuda:0", "--device=npu:0"),
        ("device=cuda", "device=npu"),
        ("train.device=cuda", "train.device=npu"),
        ("--cuda", "--cuda"),
        ("--no-cuda", "--no-cuda"),
        ("cuda.yaml", "cuda.yaml"),
        ("runs/cuda", "runs/cuda"),
        ("barracuda", "barracuda"),
        ("--name=cuda-test", "--name=cuda-test"),
        ("cpu", "cpu"),
        ("", ""),
    ],
)
def test_names_of_gpus_are_those_of_npus(word: str, given: str) -> None:
    assert name_npu(word) == given
