"""The support list: which of CANN's operators the virtual NPU implements."""

from __future__ import annotations

import json
from typing import Any

from torchport.errors import TorchportError
from torchport.vnpu.backend import BUILD_HINT, library_directory


def operators() -> list[dict[str, Any]]:
    """One row per operator name that torch_npu can ask for, from operators.json beside the libraries.

    Each row has `name`, `tier` (1 = needed by common models, 2, 3; None = no operator, or of unknown signature),
    `status` ("implemented", "elsewhere" = refused as hardware does, because CANN has it for other chips only, "gap" =
    exported and answers with an error, "unexported"), `family`, `reason` and `torch_ops`; `checks`, where the checks of
    its first phase come from ("code and page", "code", "definition", "page", "incomplete", "unknown": a call that
    hardware refuses may pass here); `unconfirmed`, by parameter the dtypes that CANN's code takes though its page does
    not list them, of which no run on hardware is known. The build generates the file from the same lines that define
    the operators.

    Raises `TorchportError` if the virtual NPU is not built.
    """
    path = library_directory() / "operators.json"
    if not path.exists():
        raise TorchportError(f"{path} is missing: the virtual NPU is not built.", hint=BUILD_HINT)
    rows: list[dict[str, Any]] = json.loads(path.read_bytes())
    return rows
