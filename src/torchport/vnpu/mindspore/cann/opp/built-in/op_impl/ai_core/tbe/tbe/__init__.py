"""Stand-in for CANN's operator packages; see te."""

from typing import Any

import te


def __getattr__(name: str) -> Any:
    return getattr(te, name)
