"""Everything below runs on `npu:0` of the virtual NPU: activate it before any test module imports torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from torchport import vnpu

vnpu.activate(force=True)  # raises, and says how to build it, where it is missing: these tests never skip


def pytest_collection_finish() -> None:
    """From its first use of the device on, torch_npu 2.13 polls in a thread: a tenth of a core in every process, also
    where a test only waits for a program. So no module makes tensors on it while it is imported."""
    npu = getattr(sys.modules.get("torch"), "npu", None)
    if npu is not None and npu.is_initialized():
        raise pytest.UsageError("a test module uses the device while it is imported; a test may, or a fixture")


@pytest.fixture
def npu() -> Iterator[None]:
    """Device 0, chosen in this thread through the C API."""
    from ascendcl import acl  # loads the library, which no other test needs by itself

    acl("aclrtSetDevice", 0)
    yield
    acl("aclrtSynchronizeDevice")
