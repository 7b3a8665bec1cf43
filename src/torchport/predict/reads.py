"""Which lines of a script read values of the device: in dry mode they get zeros, so what hangs on them is not seen."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import Any

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_READING = ("item", "tolist", "cpu", "__bool__", "__int__", "__float__", "__index__", "nonzero", "unique")
MOST = 50


class Reads:
    """Counts calls of `torch.Tensor` that read the device, by line of the script."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int, str]] = Counter()

    def install(self, torch: Any) -> None:
        """Wrap the methods that read."""
        for name in _READING:
            setattr(torch.Tensor, name, self._counted(name, getattr(torch.Tensor, name)))
        original = torch.Tensor.to

        def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(tensor, *args, **kwargs)
            if tensor.device.type == "npu" and result.device.type == "cpu":
                self._note("to")
            return result

        torch.Tensor.to = to

    def _counted(self, name: str, original: Any) -> Any:
        def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if tensor.device.type == "npu":
                self._note(name)
            return original(tensor, *args, **kwargs)

        return read

    def _note(self, what: str) -> None:
        frame = sys._getframe(2)
        while frame.f_back is not None and (
            "site-packages" in frame.f_code.co_filename or frame.f_code.co_filename.startswith((OURS, "<"))
        ):
            frame = frame.f_back
        self._counts[frame.f_code.co_filename, frame.f_lineno, what] += 1

    def list_reads(self) -> list[dict[str, Any]]:
        """The lines, those that read most first."""
        return [
            {"path": path, "line": line, "call": what, "count": count}
            for (path, line, what), count in self._counts.most_common(MOST)
        ]
