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
CALL = "from torchport.startup import activate_with_torch\n activate_with_torch()"
# site.py runs lines that start with `import`, and would report an exception at every start: hence `try`.
LINE = "try:\n {call}\nexcept ImportError:\n pass"


def pth_file() -> Path:
    """The file that `enable` writes in the site-packages of this Python."""
    return Path(sysconfig.get_path("purelib")) / FILE_NAME


def is_enabled() -> bool:
    """Whether plain `python` of this environment activates by itself."""
    return pth_file().exists()


def enable() -> Path:
    """Write the .pth file; return its path. Raises `TorchportError` if site-packages cannot be written."""
    return write_pth_file(
        pth_file(), CALL, hint='Use a virtual environment, or `eval "$(torchport vnpu env)"` in the shell.'
    )


def write_pth_file(path: Path, call: str, hint: str) -> Path:
    """Have each start of Python do `call`, by a .pth file at `path`; return it.

    `call` may be several lines, each but the first indented by one blank. Raises `TorchportError` with `hint` if the
    file cannot be written.
    """
    aside = path.with_suffix(f".{os.getpid()}")
    try:
        aside.write_text(f"import sys; exec({LINE.format(call=call)!r})\n")
        aside.replace(path)
    except OSError as error:
        raise TorchportError(f"{path} cannot be written: {error.strerror}.", hint=hint) from error
    return path


def disable() -> bool:
    """Remove the .pth file; return whether there was one. Raises `TorchportError` if it cannot be removed."""
    path = pth_file()
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise TorchportError(f"{path} cannot be removed: {error.strerror}.", hint="Remove it by hand.") from error
    return True
