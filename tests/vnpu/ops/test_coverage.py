"""What only the whole folder can tell, from the trace of all its tests."""

import os
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from workspace import measured, store, stored

from torchport import vnpu

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

from reference_pages import implemented_legacy

# A kernel has run, or a function without phases was called (a launch is traced as a call without arguments).
RUN = re.compile(r" (?:run (acl\w+) .*|call (acl\w+)\([^)].*) -> ok$")
RUN_BY_TYPE = re.compile(r' call aclop\w*Execute\w*\("(\w+)".*-> ok$')
# Run elsewhere: by MindSpore's functions in tests/mindspore, TransData and the float status in tests/vnpu.
BY_MINDSPORE_ALONE = {
    "ApplyAdagradD",
    "Atan2",
    "AvgPool3D",
    "AvgPool3DGrad",
    "AxpyV2",
    "BatchToSpaceD",
    "BatchToSpaceND",
    "CTCLoss",
    "Ceil",
    "CeluV2",
    "Conv3D",
    "Conv3DBackpropFilter",
    "Conv3DBackpropInput",
    "CustAdaptiveAvgPool2DGrad",
    "CustAdaptiveAvgPool3d",
    "CustAdaptiveAvgPool3dGrad",
    "CustMultilabelMarginLossGrad",
    "CustTraceGrad",
    "DepthToSpace",
    "Equal",
    "FastGelu",
    "FastGeluGrad",
    "Floor",
    "FloorDiv",
    "FloorMod",
    "GreaterEqual",
    "HardSwish",
    "L2NormalizeGrad",
    "LRNGrad",
    "Less",
    "Log1p",
    "LogMatrixDeterminant",
    "LogicalAnd",
    "LogicalNot",
    "LogicalOr",
    "LpNormReduceV2",
    "LpNormUpdateV2",
    "MatMulV2",
    "MatrixDeterminant",
    "MaxPool3D",
    "MaxPool3DGrad",
    "Minimum",
    "MirrorPad",
    "MirrorPadGrad",
    "Mod",
    "MultilabelMarginLoss",
    "NPUClearFloatDebugStatus",
    "NPUClearFloatStatus",
    "NPUGetFloatDebugStatus",
    "NPUGetFloatStatus",
    "NotEqual",
    "OneHotD",
    "Pow",
    "ReduceMin",
    "ReluGrad",
    "ResizeBilinearV2Grad",
    "ResizeNearestNeighborV2Grad",
    "ReverseSequence",
    "ScatterNd",
    "SigmoidGrad",
    "Sign",
    "Softplus",
    "SoftplusGrad",
    "Softsign",
    "SpaceToBatchD",
    "SpaceToBatchND",
    "SpaceToDepth",
    "Square",
    "Tan",
    "TanhGrad",
    "Trace",
    "TransData",
    "Trunc",
}


@pytest.fixture
def trace(request: pytest.FixtureRequest) -> Iterator[Iterator[str]]:
    """The lines of the trace."""
    torch.npu.synchronize()
    torch.ones(1, device="npu").item()  # the last operator has retired
    chosen = {item.path for item in request.session.items}
    absent = set(request.path.parent.rglob("test_*.py")) - chosen
    if absent or request.config.option.keyword or request.session.testsfailed:
        pytest.skip("only a passing run of the whole folder can tell")
    with Path(os.environ["VNPU_TRACE"]).open(encoding="utf-8") as lines:
        yield lines


def test_every_implemented_operator_has_run_without_an_error(trace: Iterator[str]) -> None:
    ran = {match[1] or match[2] for line in trace if (match := RUN.search(line.rstrip()))}
    implemented = {row["name"] for row in vnpu.operators() if row["status"] == "implemented"}
    assert implemented - ran == set()


def test_every_operator_of_the_old_api_has_run(trace: Iterator[str]) -> None:
    ran = {match[1] for line in trace if (match := RUN_BY_TYPE.search(line))}
    implemented = implemented_legacy()
    assert implemented - ran == BY_MINDSPORE_ALONE & implemented
    assert implemented >= BY_MINDSPORE_ALONE


def test_what_operators_allocate_is_on_record(trace: Iterator[str], request: pytest.FixtureRequest) -> None:
    """The table says nothing that is not so. What is new is a warning: an operator is added without touching it."""
    found = measured(trace)
    if request.config.getoption("--update-workspace", default=False):
        store(found)
    known = {(name, function) for name, row in stored().items() for function in row["in"]}
    now = {(name, function) for name, row in found.items() for function in row["in"]}
    hint = "pytest tests/vnpu/ops --update-workspace, then make docs"
    assert known - now == set(), hint
    if now - known:
        warnings.warn(f"{hint}: not in the table are {sorted(now - known)}", stacklevel=1)
