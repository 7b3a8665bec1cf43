"""How exactly a device says that it computes an operator: the relative error that its settings explain.

For an NPU the figures are the bounds of CANN's standard for single operators (mean relative error, by format of
computation: 2^-13 for FLOAT32, 2^-11 for HF32, 2^-10 for FLOAT16, 2^-7 for BFLOAT16). A CPU and the virtual NPU, which
computes as one, declare half a unit in the last place (IEEE 754; bfloat16 has 8 bits of mantissa with the hidden one).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchport.record.roundoff import CONVOLUTION, FLOAT32, MATMUL

NPU = {FLOAT32: 2.0**-13, "hf32": 2.0**-11, "float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-40}
HALF_ULP = {"float64": 2.0**-53, FLOAT32: 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
COARSEST = 2.0**-3  # of the 8-bit formats: e5m2 has two bits of mantissa
OF_COMPLEX = {"complex128": "float64", "complex64": FLOAT32, "complex32": "float16"}

# The operators whose factors a setting may cut, by kind as the event `device` of a recording names it.
FAMILIES = {
    MATMUL: (
        "mm",
        "bmm",
        "addmm",
        "baddbmm",
        "addbmm",
        "matmul",
        "matmul_backward",
        "linear",
        "linear_backward",
        "dot",
        "mv",
        "addmv",
        "npu_linear",
        "npu_linear_backward",
        "npu_bmmV2",
    ),
    CONVOLUTION: (
        "convolution",
        "convolution_backward",
        "_convolution",
        "convolution_overrideable",
        "convolution_backward_overrideable",
        "npu_conv2d",
        "npu_conv2d_backward",
        "npu_conv3d",
        "npu_conv3d_backward",
        "npu_convolution",
        "npu_convolution_backward",
        "npu_conv_transpose2d",
        "npu_conv_transpose2d_backward",
    ),
}
_FAMILY = {name: kind for kind, names in FAMILIES.items() for name in names}


def find_family(operator: str) -> str | None:
    """Which of FAMILIES an operator ("aten::mm") is of; None: its precision is that of its dtype."""
    return _FAMILY.get(operator.partition("::")[2].removesuffix("_"))


def get_declared_error(operator: str, dtype: str, device: str, settings: Mapping[str, Any]) -> tuple[float, str]:
    """The relative error that a device declares, and the format that it is of.

    `dtype` and `device` are those of the result, `settings` what the event `device` of the recording has.
    """
    dtype = OF_COMPLEX.get(dtype, dtype)
    if device.partition(":")[0] == "cpu" or settings.get("virtual"):
        return HALF_ULP.get(dtype, COARSEST), dtype
    kind = find_family(operator)
    used = settings.get(kind, dtype) if kind and dtype == FLOAT32 else dtype
    return NPU.get(used, COARSEST), used
