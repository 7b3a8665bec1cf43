"""The operators are traced while their tests run; test_coverage.py reads the trace at the end.

`--update-workspace` stores what they allocated, after a change that was meant.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

if "VNPU_TRACE" not in os.environ:
    # Before torch_npu is imported: the machine opens the trace when it is made.
    os.environ["VNPU_TRACE"] = str(Path(tempfile.mkdtemp(prefix="vnpu-ops-")) / "trace")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-workspace", action="store_true", help="store what this run's operators allocate as workspace.json"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name == "test_coverage.py")  # stable: it comes last, the rest stays


@pytest.fixture(autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[None]:
    """Seeds both devices. Ends the session after a kernel's failure: torch_npu drops all later work then, as on
    hardware, and every further test would fail without a reason of its own."""
    import torch

    torch.manual_seed(0)
    torch.npu.manual_seed(0)
    yield
    try:
        alive = torch.ones(1, device="npu").add_(1).item() == 2
    except RuntimeError:
        alive = False
    if not alive:
        pytest.exit(f"The device does not work any more after {request.node.nodeid}.", returncode=1)


@pytest.fixture
def compiled() -> Iterator[None]:
    """torch_npu takes its legacy path for every operator."""
    import torch

    torch.npu.set_compile_mode(jit_compile=True)
    yield
    torch.npu.set_compile_mode(jit_compile=False)
