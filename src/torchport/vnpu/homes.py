"""The variables by which a process, and its children, find a home of the virtual NPU: a folder of CANN's shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchport.vnpu import cann, chips


def build_home_environment(home: str, libraries: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """What leads to `home` and to the folders of its libraries, to be merged into `environ`.

    Raises `TorchportError` for a VNPU_SOC or VNPU_CANN in `environ` that says nothing: frameworks would only say that
    the device id is invalid, or go on without a version.
    """
    if environ.get("VNPU_SOC"):
        chips.select_chip(environ)
    if environ.get("VNPU_CANN"):
        cann.select_version(environ)
    return {
        "TORCHPORT_BACKEND": "vnpu",  # a child makes the same choice
        "LD_LIBRARY_PATH": in_front(libraries, environ.get("LD_LIBRARY_PATH", "")),
        "ASCEND_HOME_PATH": home,
        "ASCEND_OPP_PATH": f"{home}/opp",
    }


def in_front(folders: Sequence[str], paths: str) -> str:
    """The `paths` of a variable, behind those of `folders`."""
    return ":".join([*folders, *(path for path in paths.split(":") if path and path not in folders)])
