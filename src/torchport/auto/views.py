"""Who sees what: a script sees CUDA where the NPU is; torch itself, and libraries that know the NPU, see the NPU.

A script asks `device.type == "cuda"` because it wants to know whether it runs on its accelerator: the answer has to be
yes. torch asks the same because it wants to call CUDA: the answer has to be no. So the answer depends on the module
whose code asks. The name that a script is given also equals "npu": what it compares with either is true.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from torchport.knowledge.libraries import load_libraries

# Top-level packages whose code sees the machine as it is; libraries.toml adds to them.
TRUTHFUL = frozenset({"torch", "torch_npu", "torchport", "torchvision", "torchaudio", "torchair", "importlib"})
# Its `deprecated` stands between a script and what torch marks so, such as torch.cuda.amp.autocast.
WRAPPER = "typing_extensions"
# dynamo asks on behalf of the function that it compiles; it knows no other texts than plain ones.
_FOR_THE_SCRIPT = "torch._dynamo.variables"
TRACED = 2


class Name(str):
    """A CUDA name that stands for an NPU one and equals both; hash and text are those of the CUDA name."""

    __slots__ = ("_npu",)
    _npu: str

    def __new__(cls, cuda: str, npu: str) -> Name:
        """The text `cuda`, equal to `npu` as well."""
        name = super().__new__(cls, cuda)
        name._npu = npu
        return name

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True or (isinstance(other, str) and str.__eq__(other, self._npu) is True)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


class _Views(dict[str, int]):
    """What the code of a module sees, by the module's name; decided once for each."""

    def __missing__(self, module: str) -> int:
        truthful = TRUTHFUL | {name for name, row in load_libraries().items() if row.knows_npu}
        self[module] = TRACED if module.startswith(_FOR_THE_SCRIPT) else module.partition(".")[0] not in truthful
        return self[module]


_VIEWS = _Views()


def sees_cuda(depth: int = 2) -> int:
    """Whether the code that called the function which calls this one is to see CUDA (`depth` frames above): false,
    true, or TRACED where dynamo asks for a script.
    """
    try:
        return _VIEWS[sys._getframe(depth).f_globals.get("__name__", "")]
    except ValueError:  # no frame: C++ asks, in a thread of its own
        return False


def is_script(frame: FrameType) -> bool:
    """Whether a frame is neither torch's code nor ours nor Python's own library, nor a wrapper around torch's."""
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    return package not in TRUTHFUL and package not in sys.stdlib_module_names and package != WRAPPER


def script_frame(frame: FrameType | None) -> FrameType | None:
    """The nearest of `frame` and its callers that `is_script`; None where there is none."""
    while frame is not None and not is_script(frame):
        frame = frame.f_back
    return frame
