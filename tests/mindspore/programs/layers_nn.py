"""The same layers and functions of nn and ops, whose kernels MindSpore has for the CPU, too."""

# ruff: noqa: N802 -- the names of layers_mint.py

from mindspore import nn, ops
from mindspore.nn import SGD, BatchNorm2d
from mindspore.ops import cross_entropy, masked_fill, matmul, mean, relu, reshape, softmax, split

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

# Of LayerNorm. CANN's LayerNormGrad, which MindSpore calls for nn's, is not told of it and has 1e-12.
EPSILON = 1e-7
HALVED, PADDED = ops.MaxPool(2, 2), nn.MaxPool2d(3, 2, "pad", 1)


def Conv2d(i, o, size, stride=1, padding=0, bias=True):
    return nn.Conv2d(i, o, size, stride, "pad", padding, has_bias=bias)


def Linear(i, o):
    return nn.Dense(i, o)


def LayerNorm(size):
    return nn.LayerNorm((size,), epsilon=EPSILON)


def Embedding(words, size):
    return nn.Embedding(words, size)


def table(embedding):
    return embedding.embedding_table


def linear(x, weight):
    return ops.MatMul(transpose_b=True)(x, weight)


def max_pool2d(x, size):
    return HALVED(x)


def max_pool2d_padded(x):
    return PADDED(x)


def flatten(x, start):
    return ops.reshape(x, (x.shape[0], -1))


def gelu(x):
    return x * 0.5 * (1.0 + ops.erf(x * 0.7071067811865476))


def transpose(x, one, other):
    return ops.swapaxes(x, one, other)
