"""`torchport vnpu enable` and `disable`: the virtual NPU for plain `python` in one environment.

A .pth file in site-packages makes Python run one line at each start. That line waits for the import of torch
(torchport.startup) and cannot hurt a Python from which torchport has been removed.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

from torchport.errors import TorchportError

# Sorts behind __editable__.torchport.pth, which makes the package importable in a checkout.
FILE_NAME = "torchport_vnpu.pth"
# site.py runs lines that start with `import`, and would report an exception at every start: hence `try`.
LINE = (
    r'import sys; exec("try:\n from torchport.startup import activate_with_torch\n activate_with_torch()'
    r'\nexcept ImportError:\n pass")'
    "\n"
)


def pth_file() -> Path:
    """The file that `enable` writes in the site-packages of this Python."""
    return Path(sysconfig.get_path("purelib")) / FILE_NAME


def enabled() -> bool:
    """Whether plain `python` of this environment activates by itself."""
    return pth_file().exists()


def enable() -> Path:
    """Write the .pth file; return its path. Raises `TorchportError` if site-packages cannot be written."""
    path = pth_file()
    aside = path.with_suffix(f".{os.getpid()}")
    try:
        aside.write_text(LINE)
        aside.replace(path)
    except OSError as error:
        raise TorchportError(
            f"{path} cannot be written: {error.strerror}.",
            hint='Use a virtual environment, or `eval "$(torchport vnpu env)"` in the shell.',
        ) from error
    return path


def disable() -> bool:
    """Remove the .pth file; return whether there was one. Raises `TorchportError` if it cannot be removed."""
    path = pth_file()
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise TorchportError(
            f"{path} cannot be removed: {error.strerror}.", hint="Remove it by hand."
        ) from error
    return True
