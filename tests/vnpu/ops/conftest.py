"""The operators are traced while their tests run; test_coverage.py reads the trace at the end."""

import os
import tempfile
from pathlib import Path

import pytest

if "VNPU_TRACE" not in os.environ:
    # Before torch_npu is imported: the machine opens the trace when it is made.
    os.environ["VNPU_TRACE"] = str(Path(tempfile.mkdtemp(prefix="vnpu-ops-")) / "trace")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name == "test_coverage.py")  # stable: it comes last, the rest stays


@pytest.fixture(autouse=True)
def seeded() -> None:
    import torch

    torch.manual_seed(0)
    torch.npu.manual_seed(0)
