"""What the tests of whole models share."""

from collections.abc import Iterator

import pytest
import torch

from torchport.patches import Patches
from torchport.record import gelu


@pytest.fixture(autouse=True)
def tanh_form() -> Iterator[None]:
    """The CPU's GELU is the NPU's, as in the reference of a port: the difference is known, and is not looked for."""
    patches = Patches()
    gelu.replace_gelu_kernels(torch, "CPU", patches, lambda note: None)
    yield
    patches.undo()
