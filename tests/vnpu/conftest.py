"""Everything below runs on `npu:0` of the virtual NPU: activate it before any test module imports torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torchport import vnpu

vnpu.activate(force=True)  # raises, and says how to build it, where it is missing: these tests never skip


@pytest.fixture
def npu() -> Iterator[None]:
    """Device 0, chosen in this thread through the C API."""
    from ascendcl import acl  # loads the library, which no other test needs by itself

    acl("aclrtSetDevice", 0)
    yield
    acl("aclrtSynchronizeDevice")
