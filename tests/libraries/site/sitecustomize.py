"""torchvision from the registry is a CUDA build, whose operators a CPU build of torch cannot load: define those that its
Python expects, so that transforms and models can be imported. Real NPU machines have torchvision's CPU build."""

from torchport.on_import import after_import


def _define(torch):
    global _library
    _library = torch.library.Library("torchvision", "DEF")  # kept: its end would take the operators away
    for name in ("nms", "qnms"):
        _library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


after_import("torch", _define)
