# cause: script.cuda-compiler
import torch
from torch.utils.cpp_extension import load_inline

module = load_inline(
    "scale", cpp_sources="", cuda_sources="__global__ void scale(float *x) { x[0] *= 2; }", functions=[]
)
print(module)
