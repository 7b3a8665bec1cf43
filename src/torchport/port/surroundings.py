"""What a recorded run finds around it: experiment trackers that stay on this machine, a port of its own."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

# Nothing differs between two runs by chance, and a kill loses no output.
SAME = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"}
# Trackers by the variable that chooses their mode: what it is set to, and the user's values that stay because
# they send nothing either.
MODES: dict[str, tuple[str, frozenset[str]]] = {
    "WANDB_MODE": ("offline", frozenset({"offline", "disabled", "dryrun"})),
    "COMET_MODE": ("offline", frozenset({"offline", "disabled"})),
    "NEPTUNE_MODE": ("offline", frozenset({"offline", "debug"})),
    "SWANLAB_MODE": ("offline", frozenset({"offline", "local", "disabled"})),
    "CLEARML_OFFLINE_MODE": ("1", frozenset({"1", "true", "True"})),
}
# Where trackers put their files, by variable: the folder in the view, as their own default would be.
PLACES = {"WANDB_DIR": "", "COMET_OFFLINE_DIRECTORY": ".cometml-runs", "SWANLAB_LOG_DIR": "swanlog"}


def build_run_environment(environ: Mapping[str, str], view: Path) -> dict[str, str]:
    """Variables for a run that is not the user's own, to be put over `environ`.

    Experiment trackers work offline and write below `view`, the run's folder; nobody's account gets runs that
    are only a check. MASTER_PORT (and PET_MASTER_PORT, which torchrun reads for --master-port) is free now,
    so that the run does not meet a training of the user's. What the user set that already keeps things on this
    machine is left alone.
    """
    modes = {name: offline for name, (offline, quiet) in MODES.items() if environ.get(name, "") not in quiet}
    places = {name: str(view / place) for name, place in PLACES.items()}
    port = str(free_port())
    return {
        **SAME,
        **modes,
        **places,
        "MLFLOW_TRACKING_URI": (view.absolute() / "mlruns").as_uri(),
        "MASTER_PORT": port,
        "PET_MASTER_PORT": port,
    }


def free_port() -> int:
    """A TCP port that nothing on this machine listens to, chosen by the kernel.

    Somebody else may take it before it is used: then the run fails and says so. Raises OSError without a
    network stack.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))  # all addresses: rendezvous servers bind so too
        number: int = probe.getsockname()[1]
        return number
