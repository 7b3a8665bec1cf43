"""Trackers stay on this machine in runs that are only a check, and each run has a port of its own."""

import socket
from pathlib import Path

import pytest

from torchport.port.surroundings import build_run_environment, free_port


def test_trackers_are_offline_and_write_into_the_view() -> None:
    variables = build_run_environment({"WANDB_MODE": "online", "WANDB_DIR": "/home/u/runs"}, Path("/out/a view"))
    assert variables["WANDB_MODE"] == "offline"
    assert variables["WANDB_DIR"] == "/out/a view/"[:-1]
    assert variables["MLFLOW_TRACKING_URI"] == "file:///out/a%20view/mlruns"
    assert variables["CLEARML_OFFLINE_MODE"] == "1"
    assert variables["PYTHONHASHSEED"] == "0"


@pytest.mark.parametrize(("name", "value"), [("WANDB_MODE", "disabled"), ("NEPTUNE_MODE", "debug")])
def test_what_already_sends_nothing_stays(name: str, value: str) -> None:
    assert name not in build_run_environment({name: value}, Path("/v"))
    assert build_run_environment({}, Path("/v"))[name] == "offline"


def test_what_only_the_user_decides_is_left_alone() -> None:
    assert not {"HF_HUB_OFFLINE", "HOME", "PATH"} & set(build_run_environment({}, Path("/v")))


def test_a_port_that_is_taken_is_not_given() -> None:
    with socket.socket() as server:
        server.bind(("", 0))
        server.listen()
        taken = server.getsockname()[1]
        assert all(free_port() != taken for _ in range(50))
    variables = build_run_environment({"MASTER_PORT": "29500"}, Path("/v"))
    assert 1024 < int(variables["MASTER_PORT"]) == int(variables["PET_MASTER_PORT"]) < 65536
    with socket.socket() as server:
        server.bind(("", int(variables["MASTER_PORT"])))  # it is free
