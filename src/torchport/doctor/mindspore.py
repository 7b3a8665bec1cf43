"""MindSpore on the virtual NPU: what an environment that has MindSpore lacks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torchport.doctor.check import Check, Machine
from torchport.errors import TorchportError
from torchport.vnpu.mindspore import home, wheels

ACTIVATE = 'eval "$(torchport vnpu env --mindspore)"'


def is_mindspore_only() -> bool:
    """Whether this environment is for MindSpore: it is installed, and torch_npu is not."""
    return wheels.find_installed_version("mindspore") is not None and wheels.find_installed_version("torch_npu") is None


def list_checks(machine: Machine) -> Iterator[Check]:
    """The packages, the libraries, and the variables of a shell; nothing where MindSpore is not installed."""
    found = wheels.find_installed_version("mindspore")
    if found is None:
        return
    problems = {each.package: each for each in wheels.find_problems()}
    for package in ("mindspore", "numpy", "torch"):
        if package in problems and (package != "torch" or is_mindspore_only()):
            yield Check(f"mindspore: {package}", False, problems[package].sentence, problems[package].command)
    if "mindspore" not in problems:
        yield Check("mindspore", True, found)
    try:
        yield Check("mindspore: libraries", True, str(home.complete_lib64()))
    except TorchportError as error:
        yield Check("mindspore: libraries", False, error.message, error.hint)
    yield from _shell(machine)


def _shell(machine: Machine) -> Iterator[Check]:
    """Whether `python train.py` in this shell would find all; a script may activate by itself, so it is advice."""
    if machine.environ.get("ASCEND_HOME_PATH", "") != str(home.HOME):
        detail = "this shell does not use the virtual NPU; scripts that call torchport.vnpu.activate do"
        yield Check("mindspore: shell", False, detail, ACTIVATE, advice=True)
        return
    for variable, wanted in (("PYTHONPATH", home.PYTHON), ("LD_LIBRARY_PATH", home.complete_lib64())):
        if str(wanted) not in machine.environ.get(variable, "").split(":"):
            lacks = "the packages te and hccl" if variable == "PYTHONPATH" else "the virtual NPU's libraries"
            yield Check(f"mindspore: {variable}", False, f"{lacks} are not in it ({wanted})", ACTIVATE)
    if not Path(home.PYTHON, "te", "__init__.py").exists():
        yield Check("mindspore: te", False, f"there is no {home.PYTHON}/te", "Install torchport again.")
