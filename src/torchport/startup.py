"""What Python runs at each start under `torchport run`, `port` and in an environment with `torchport vnpu enable`: wait
for torch, then activate the NPU; with TORCHPORT_AUTO=1 patch torch for CUDA scripts, with TORCHPORT_RECORD record, with
TORCHPORT_PREDICT note what a step costs, with
TORCHPORT_FAILURES=1 end with 1 after a failure on the NPU that nobody has seen, with TORCHPORT_DIAGNOSE=1 say why the
script failed, with TORCHPORT_USED which NPUs were used; wait for torchvision, too."""

import os

from torchport.cuda_builds import mend_when_imported
from torchport.on_import import before_import

# Has the sitecustomize that calls this module; for PYTHONPATH.
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start")


def prepend_start_folder(python_path: str) -> str:
    """PYTHONPATH with which Python starts us first."""
    inherited = [path for path in python_path.split(os.pathsep) if path and path != FOLDER]
    return os.pathsep.join([FOLDER, *inherited])


def _activate() -> None:
    from torchport import vnpu  # here: programs that never import torch must not pay for it

    if vnpu.detect().kind is not vnpu.Kind.NONE:  # else torch_npu itself says what it misses
        vnpu.activate()


def _watch() -> None:
    from torchport.vnpu.failures import fail_unless_seen

    fail_unless_seen()


def activate_with_torch() -> None:
    """Activate the NPU backend of this machine when torch is imported, if there is one by then."""
    mend_when_imported()
    if os.environ.get("TORCHPORT_USED"):
        from torchport.record import used_devices

        used_devices.say_at_exit()  # registered first: its line is the last
    if os.environ.get("TORCHPORT_DIAGNOSE") == "1":
        from torchport.diagnose.at_exit import say_at_exit

        say_at_exit()
    if os.environ.get("TORCHPORT_FAILURES") == "1":
        before_import(("torch", "torch_npu"), _watch)
    patched = os.environ.get("TORCHPORT_AUTO") == "1"
    if patched:
        import torchport.auto  # noqa: F401  importing it is what it is for: first, as the recorder sees what it leaves
    if "TORCHPORT_RECORD" in os.environ:
        from torchport.record import session

        if session.start_recording():
            return
    if "TORCHPORT_PREDICT" in os.environ:
        from torchport.predict import session as predicted

        predicted.start_noting()
    if not patched:
        before_import(("torch", "torch_npu"), _activate)
