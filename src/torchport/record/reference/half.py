from __future__ import annotations
from typing import Any
from torchport.patches import Patches


def patch(torch: Any, patches: Patches) -> None:
    pass
