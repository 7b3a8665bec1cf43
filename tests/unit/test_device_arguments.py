"""Arguments and variables that name a device or a backend: what the port is given for them."""

from __future__ import annotations

import pytest

from torchport.port.told import list_renamed, name_npu, rename_arguments, rename_variables


@pytest.mark.parametrize(
    ("word", "given"),
    [
        ("cuda", "npu"),
        ("cuda:1", "npu:1"),
        ("--device=cuda:0", "--device=npu:0"),
        ("device=cuda", "device=npu"),
        ("train.device=cuda", "train.device=npu"),
        ("+model.device=cuda:1", "+model.device=npu:1"),
        ("++device=cuda", "++device=npu"),
        ("nccl", "hccl"),
        ("--dist-backend=nccl", "--dist-backend=hccl"),
        ("--trainer.accelerator=cuda", "--trainer.accelerator=cuda"),
        ("accelerator=cuda", "accelerator=cuda"),
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


def test_an_accelerator_of_lightning_stays() -> None:
    words = ["--accelerator", "cuda", "--device", "cuda", "cuda"]
    assert rename_arguments(words) == ["--accelerator", "cuda", "--device", "npu", "npu"]


def test_variables() -> None:
    environment = {"DEVICE": "cuda:1", "BACKEND": "nccl", "CUDA_HOME": "/usr/local/cuda", "X": "cuda,cpu", "Y": "cpu"}
    assert rename_variables(environment) == {"DEVICE": "npu:1", "BACKEND": "hccl"}
    assert list(list_renamed(["--n", "3", "cuda", "cuda"], environment)) == [
        "the port was given npu for the argument cuda",
        "the port was given DEVICE=npu:1 for the variable DEVICE=cuda:1",
        "the port was given BACKEND=hccl for the variable BACKEND=nccl",
    ]
