"""TP404: CUDA in libraries that have an NPU backend of another name, or none: OpenCV, ONNX Runtime, accelerate."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.source.module import Module

_NAMES = {
    "accelerate.DistributedType.MULTI_GPU": "DistributedType.MULTI_NPU, which is what accelerate answers there.",
    "accelerate.utils.DistributedType.MULTI_GPU": "DistributedType.MULTI_NPU, which is what accelerate answers there.",
    "cv2.dnn.DNN_BACKEND_CUDA": "cv2.dnn.DNN_BACKEND_CANN in a build of OpenCV with CANN.",
    "cv2.dnn.DNN_TARGET_CUDA": "cv2.dnn.DNN_TARGET_NPU in a build of OpenCV with CANN.",
    "cv2.dnn.DNN_TARGET_CUDA_FP16": "cv2.dnn.DNN_TARGET_NPU in a build of OpenCV with CANN.",
}
_CUDA_MODULES = ("cv2.cuda", "cv2.cudacodec", "cv2.cuda_")
_PROVIDERS = frozenset({"CUDAExecutionProvider", "TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider"})


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every such name, and for every such provider in a string."""
    for attribute in module.iter_nodes(ast.Attribute):
        name = module.resolve_name(attribute) or ""
        above = module.get_parent(attribute)
        if isinstance(above, ast.Attribute) and module.resolve_name(above):
            continue
        if name in _NAMES:
            yield RULE.make_finding(module, attribute, f"{name} means GPUs", hint=f"Use {_NAMES[name]}")
        elif name.startswith(_CUDA_MODULES):
            yield RULE.make_finding(
                module,
                attribute,
                f"{name} needs a GPU",
                hint="Use the function of the same name in cv2, which computes on the CPU, or torch on the NPU.",
            )
    for constant in module.iter_nodes(ast.Constant):
        if constant.value in _PROVIDERS and not isinstance(module.get_parent(constant), ast.Expr):
            yield RULE.make_finding(
                module,
                constant,
                f"ONNX Runtime has no {constant.value} on a machine with NPUs",
                hint="onnxruntime-cann has CANNExecutionProvider; keep CPUExecutionProvider behind it.",
            )


RULE = Rule(
    code="TP404",
    title="CUDA backends of OpenCV, ONNX Runtime and accelerate",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="OpenCV's cuda module is in builds for CUDA alone. ONNX Runtime goes on with the CPU where a provider is not "
    "there, which is right and slow.",
    reference="https://onnxruntime.ai/docs/execution-providers/community-maintained/CANN-ExecutionProvider.html",
    words=(*CUDA, b"multi_gpu", b"tensorrt"),
    check=check_module,
    rewrites=(),
    reports=(
        "import cv2\nx = cv2.cuda.GpuMat()\n",
        "import onnxruntime as ort\ns = ort.InferenceSession(p, providers=['CUDAExecutionProvider'])\n",
        "from accelerate import DistributedType\nok = s.distributed_type == DistributedType.MULTI_GPU\n",
        "import cv2\nnet.setPreferableBackend(cv2.dnn.DNN_BACKEND_CUDA)\n",
    ),
    ignores=("import cv2\nx = cv2.resize(x, s)  # cuda\n", "from .tools import cv2\nx = cv2.cuda.GpuMat()\n"),
)
