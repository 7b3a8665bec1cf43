"""mint's layers and functions, under the names that pairs.py uses."""

from mindspore.mint import flatten, matmul, mean, reshape, split, transpose
from mindspore.mint.nn import BatchNorm2d, Conv2d, Embedding, LayerNorm, Linear
from mindspore.mint.nn.functional import cross_entropy, gelu, linear, max_pool2d, relu, softmax
from mindspore.mint.optim import SGD
from mindspore.ops import masked_fill

__all__ = [
    "SGD",
    "BatchNorm2d",
    "Conv2d",
    "Embedding",
    "LayerNorm",
    "Linear",
    "cross_entropy",
    "flatten",
    "gelu",
    "linear",
    "masked_fill",
    "matmul",
    "max_pool2d",
    "max_pool2d_padded",
    "mean",
    "relu",
    "reshape",
    "softmax",
    "split",
    "table",
    "transpose",
]

EPSILON = 1e-5  # of LayerNorm


def max_pool2d_padded(x):
    return max_pool2d(x, 3, 2, 1)


def table(embedding):
    return embedding.weight
