"""A right call of each operator that models use (tier 1), for tests that change something in it.

    name, make = "aclnnAdd", CALLS["aclnnAdd"]
    run(name, *make())

Each call makes its operands anew: they are overwritten. Floating-point ones hold ones, indices zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from layer_calls import LAYER_CALLS
from operands import BOOL, BYTE, F32, HALF, INT, b, f, several, z


def unary() -> list[Any]:
    return [f(2, 3), f(2, 3)]


def binary() -> list[Any]:
    return [f(2, 3), f(3), f(2, 3)]


def loss() -> list[Any]:
    return [f(2, 3), f(2, 3), 1, f()]


def loss_gradient() -> list[Any]:
    return [f(), f(2, 3), f(2, 3), 1, f(2, 3)]


def compared() -> list[Any]:
    return [f(2, 3), 0.5, b(2, 3)]


def attention() -> list[torch.Tensor]:
    return several((2, 4, 5, 8), (2, 2, 6, 8), (2, 2, 6, 8))


# ... nothing, prefixOptional, scaleValue, keepProb, preTokens, nextTokens, headNum, layout, innerPrecise, sparseMode
ATTENTION: list[Any] = [None, 0.5, 1.0, 2**31 - 1, 2**31 - 1, 4, "BNSD", 0, 0]

CALLS: dict[str, Callable[[], list[Any]]] = {
    **dict.fromkeys(
        (
            "aclnnAbs",
            "aclnnCeil",
            "aclnnExp",
            "aclnnGelu",
            "aclnnLog",
            "aclnnNeg",
            "aclnnReciprocal",
            "aclnnRelu",
            "aclnnSigmoid",
            "aclnnSqrt",
            "aclnnTanh",
        ),
        unary,
    ),
    "aclnnBitwiseNot": lambda: [z(2, 3), z(2, 3)],
    **dict.fromkeys(("aclnnIsFinite", "aclnnIsNegInf", "aclnnLogicalNot"), lambda: [f(2, 3), b(2, 3)]),
    **dict.fromkeys(("aclnnDiv", "aclnnMul"), binary),
    **dict.fromkeys(("aclnnEqTensor", "aclnnNeTensor"), lambda: [f(2, 3), f(3), b(2, 3)]),
    **dict.fromkeys(("aclnnBitwiseAndTensor", "aclnnBitwiseOrTensor"), lambda: [z(2, 3), z(3), z(2, 3)]),
    **dict.fromkeys(("aclnnEqScalar", "aclnnNeScalar", "aclnnGeScalar", "aclnnGtScalar", "aclnnLtScalar"), compared),
    "aclnnAdd": lambda: [f(2, 3), f(3), 1, f(2, 3)],
    **dict.fromkeys(("aclnnAdds", "aclnnSubs", "aclnnRsubs"), lambda: [f(2, 3), 1, 1, f(2, 3)]),
    **dict.fromkeys(("aclnnDivs", "aclnnMuls", "aclnnPowTensorScalar"), lambda: [f(2, 3), 2, f(2, 3)]),
    "aclnnClamp": lambda: [f(2, 3), 0.0, 1.0, f(2, 3)],
    "aclnnInplaceAdd": lambda: [f(2, 3), f(3), 1],
    "aclnnInplaceAdds": lambda: [f(2, 3), 1, 1],
    "aclnnInplaceMul": lambda: [f(2, 3), f(3)],
    **dict.fromkeys(
        ("aclnnInplaceMuls", "aclnnInplaceDivs", "aclnnInplaceFillScalar", "aclnnInplaceLeakyRelu"),
        lambda: [f(2, 3), 2],
    ),
    **dict.fromkeys(("aclnnInplaceAddcdiv", "aclnnInplaceAddcmul"), lambda: [f(2, 3), f(3), f(3), 0.5]),
    "aclnnInplaceLerps": lambda: [f(2, 3), f(2, 3), 0.5],
    "aclnnInplaceCopy": lambda: [f(2, 3), f(3)],
    **dict.fromkeys(("aclnnInplaceOne", "aclnnInplaceRelu", "aclnnInplaceZero"), lambda: [f(2, 3)]),
    "aclnnSWhere": lambda: [b(2, 3), f(2, 3), f(3), f(2, 3)],
    "aclnnCast": lambda: [f(2, 3), HALF, f(2, 3, dtype=HALF)],
    "aclnnLeakyReluBackward": lambda: [f(2, 3), f(2, 3), 0.1, False, f(2, 3)],
    "aclnnThresholdBackward": lambda: [f(2, 3), f(2, 3), 0.0, f(2, 3)],
    **dict.fromkeys(
        ("aclnnGeluBackward", "aclnnSigmoidBackward", "aclnnTanhBackward"), lambda: [f(2, 3), f(2, 3), f(2, 3)]
    ),
    # products
    "aclnnAddmm": lambda: [f(4), f(2, 3), f(3, 4), 1, 1, f(2, 4), 1],
    "aclnnMatmul": lambda: [f(5, 2, 3), f(3, 4), f(5, 2, 4), 1],
    "aclnnMm": lambda: [f(2, 3), f(3, 4), f(2, 4), 1],
    "aclnnConvolution": lambda: [
        f(2, 4, 5, 5),
        f(6, 2, 3, 3),
        f(6),
        [1, 1],
        [1, 1],
        [1, 1],
        False,
        [0, 0],
        2,
        f(2, 6, 5, 5),
        0,
    ],
    "aclnnConvolutionBackward": lambda: [
        f(2, 6, 5, 5),
        f(2, 4, 5, 5),
        f(6, 2, 3, 3),
        [6],
        [1, 1],
        [1, 1],
        [1, 1],
        False,
        [0, 0],
        2,
        [True] * 3,
        0,
        f(2, 4, 5, 5),
        f(6, 2, 3, 3),
        f(6),
    ],
    "aclnnFlashAttentionScore": lambda: [
        *attention(),
        None,
        None,
        None,
        z(5, 6, dtype=BOOL),
        *ATTENTION,
        f(2, 4, 5, 8),
        f(2, 4, 5, 8),
        None,
        f(2, 4, 5, 8),
    ],
    "aclnnFlashAttentionScoreGrad": lambda: [
        *attention(),
        f(2, 4, 5, 8),
        None,
        None,
        None,
        z(5, 6, dtype=BOOL),
        f(2, 4, 5, 8),
        f(2, 4, 5, 8),
        None,
        f(2, 4, 5, 8),
        *ATTENTION,
        *attention(),
        None,
    ],
    # reductions
    **dict.fromkeys(("aclnnAll", "aclnnAny"), lambda: [b(2, 3), [1], False, b(2)]),
    **dict.fromkeys(("aclnnMax", "aclnnMin"), lambda: [f(2, 3), f()]),
    **dict.fromkeys(("aclnnMean", "aclnnReduceSum"), lambda: [f(2, 3), [1], False, F32, f(2)]),
    **dict.fromkeys(("aclnnStd", "aclnnVarCorrection"), lambda: [f(2, 3), [1], 1, False, f(2)]),
    "aclnnLinalgVectorNorm": lambda: [f(2, 3), 2.0, [1], False, F32, f(2)],
    "aclnnArgMax": lambda: [f(2, 3), 1, False, z(2)],
    "aclnnMaxDim": lambda: [f(2, 3), 1, False, f(2), z(2)],
    "aclnnCumsum": lambda: [f(2, 3), 1, F32, f(2, 3)],
    "aclnnSort": lambda: [f(2, 3), True, 1, False, f(2, 3), z(2, 3)],
    "aclnnTopkV2": lambda: [f(2, 5), 3, 1, True, True, 0, f(2, 3), z(2, 3)],
    # shapes and places
    "aclnnCat": lambda: [[f(2, 3), f(2, 1)], 1, f(2, 4)],
    "aclnnStack": lambda: [[f(2, 3), f(2, 3)], 1, f(2, 2, 3)],
    "aclnnFlip": lambda: [f(2, 3), [0], f(2, 3)],
    "aclnnConstantPadNd": lambda: [f(2, 3), [1, 2], 0.5, f(2, 6)],
    "aclnnTriu": lambda: [f(3, 4), 1, f(3, 4)],
    "aclnnGather": lambda: [f(4, 3), 0, z(2, 3), f(2, 3)],
    "aclnnIndex": lambda: [f(4, 5, 6), [z(2, 1), z(3)], f(2, 3, 6)],
    "aclnnIndexPutImpl": lambda: [f(4, 5), [z(3)], f(3, 5), False, False],
    "aclnnIndexSelect": lambda: [f(4, 3), 0, z(2), f(2, 3)],
    "aclnnInplaceMaskedFillScalar": lambda: [f(2, 3), b(3), 0.5],
    "aclnnInplaceScatterValue": lambda: [f(4, 3), 0, z(2, 3), 0.5, 0],
    "aclnnMaskedSelect": lambda: [f(2, 3), b(2, 3), f(6)],
    "aclnnNonzeroV2": lambda: [f(2, 3), z(2, 6)],
    "aclnnEmbedding": lambda: [f(4, 3), z(2), f(2, 3)],
    "aclnnEmbeddingDenseBackward": lambda: [f(2, 3), z(2), 4, -1, False, f(4, 3)],
    # from numbers
    "aclnnArange": lambda: [0, 2, 0.5, f(4)],
    "aclnnEye": lambda: [2, 3, f(2, 3)],
    "aclnnLinspace": lambda: [0, 1, 5, f(5)],
    "aclnnOneHot": lambda: [z(2, 3), 4, f(1), f(1), -1, f(2, 3, 4)],
    "aclnnRandperm": lambda: [5, 1, 0, z(5)],
    "aclnnInplaceNormal": lambda: [f(2, 3), 0.0, 1.0, 1, 0],
    "aclnnInplaceRandom": lambda: [f(2, 3), 0, 5, 1, 0],
    "aclnnInplaceUniform": lambda: [f(2, 3), 0.0, 1.0, 1, 0],
    "aclnnMultinomial": lambda: [f(2, 3), 2, False, 1, 0, z(2, 2)],
    "aclnnDropoutGenMaskV2": lambda: [[2, 3], 0.5, 1, 0, F32, z(16, dtype=BYTE)],
    "aclnnDropoutDoMask": lambda: [f(2, 3), z(16, dtype=BYTE), 0.5, f(2, 3)],
    # normalisation, softmax, pooling, interpolation
    "aclnnBatchNorm": lambda: [f(2, 3, 4), f(3), f(3), f(3), f(3), True, 0.1, 1e-5, f(2, 3, 4), f(3), f(3)],
    "aclnnBatchNormBackward": lambda: [
        f(2, 3, 4),
        f(2, 3, 4),
        f(3),
        f(3),
        f(3),
        f(3),
        f(3),
        True,
        1e-5,
        [True] * 3,
        f(2, 3, 4),
        f(3),
        f(3),
    ],
    "aclnnBatchNormElemt": lambda: [f(2, 3, 4), f(3), f(3), f(3), f(3), 1e-5, f(2, 3, 4)],
    "aclnnBatchNormGatherStatsWithCounts": lambda: [
        f(2, 3, 4),
        f(2, 3),
        f(2, 3),
        f(3),
        f(3),
        0.1,
        1e-5,
        f(2),
        f(3),
        f(3),
    ],
    "aclnnBatchNormReduceBackward": lambda: [
        f(2, 3, 4),
        f(2, 3, 4),
        f(3),
        f(3),
        f(3),
        True,
        True,
        True,
        f(3),
        f(3),
        f(3),
        f(3),
    ],
    "aclnnBatchNormStats": lambda: [f(2, 3, 4), 1e-5, f(3), f(3)],
    "aclnnLayerNorm": lambda: [f(2, 3), [3], f(3), f(3), 1e-5, f(2, 3), f(2, 1), f(2, 1)],
    "aclnnLayerNormBackward": lambda: [
        f(2, 3),
        f(2, 3),
        [3],
        f(2, 1),
        f(2, 1),
        f(3),
        f(3),
        [True] * 3,
        f(2, 3),
        f(3),
        f(3),
    ],
    **dict.fromkeys(("aclnnSoftmax", "aclnnLogSoftmax"), lambda: [f(2, 3), 1, f(2, 3)]),
    **dict.fromkeys(("aclnnSoftmaxBackward", "aclnnLogSoftmaxBackward"), lambda: [f(2, 3), f(2, 3), 1, f(2, 3)]),
    "aclnnMaxPool2dWithMask": lambda: [
        f(1, 2, 4, 4),
        [2, 2],
        [2, 2],
        [0, 0],
        [1, 1],
        False,
        f(1, 2, 2, 2),
        z(1, 2, 4, 64, dtype=torch.int8),
    ],
    "aclnnMaxPool2dWithMaskBackward": lambda: [
        f(1, 2, 2, 2),
        f(1, 2, 4, 4),
        z(1, 2, 4, 64, dtype=torch.int8),
        [2, 2],
        [2, 2],
        [0, 0],
        [1, 1],
        False,
        f(1, 2, 4, 4),
    ],
    "aclnnUpsampleBilinear2d": lambda: [f(1, 2, 3, 3), [6, 6], False, 2.0, 2.0, f(1, 2, 6, 6)],
    "aclnnUpsampleBilinear2dBackwardV2": lambda: [f(1, 2, 6, 6), [6, 6], [1, 2, 3, 3], False, 2.0, 2.0, f(1, 2, 3, 3)],
    # losses
    **dict.fromkeys(("aclnnL1Loss", "aclnnMseLoss"), loss),
    **dict.fromkeys(("aclnnL1LossBackward", "aclnnMseLossBackward"), loss_gradient),
    "aclnnSmoothL1Loss": lambda: [f(2, 3), f(2, 3), 1, 1.0, f()],
    "aclnnSmoothL1LossBackward": lambda: [f(), f(2, 3), f(2, 3), 1, 1.0, f(2, 3)],
    "aclnnKlDiv": lambda: [f(2, 3), f(2, 3), 1, False, f()],
    "aclnnKlDivBackward": lambda: [f(), f(2, 3), f(2, 3), 1, False, f(2, 3)],
    "aclnnBinaryCrossEntropy": lambda: [f(2, 3), f(2, 3), f(3), 1, f()],
    "aclnnBinaryCrossEntropyBackward": lambda: [f(), f(2, 3), f(2, 3), f(3), 1, f(2, 3)],
    "aclnnBinaryCrossEntropyWithLogits": lambda: [f(2, 3), f(2, 3), f(3), f(3), 1, f()],
    "aclnnBinaryCrossEntropyWithLogitsBackward": lambda: [f(), f(2, 3), f(2, 3), f(3), f(3), 1, f(2, 3)],
    "aclnnNLLLoss": lambda: [f(2, 3), z(2), f(3), 1, -100, f(), f()],
    "aclnnNLLLossBackward": lambda: [f(), f(2, 3), z(2), f(3), 1, -100, f(), f(2, 3)],
    "aclnnNLLLoss2d": lambda: [f(2, 3, 4, 5), z(2, 4, 5), f(3), 1, -100, f(), f()],
    "aclnnNLLLoss2dBackward": lambda: [f(), f(2, 3, 4, 5), z(2, 4, 5), f(3), 1, -100, f(), f(2, 3, 4, 5)],
    # lists and optimizers
    **dict.fromkeys(("aclnnForeachAddScalarV2", "aclnnForeachMulScalarV2"), lambda: [several(), 2.0, several()]),
    "aclnnForeachAddListV2": lambda: [several(), several(), 1, several()],
    "aclnnForeachAddcmulScalarV2": lambda: [several(), several(), several(), 0.5, several()],
    "aclnnForeachDivScalarList": lambda: [several(), [2.0, 4.0], several()],
    "aclnnForeachLerpScalar": lambda: [several(), several(), 0.5, several()],
    "aclnnForeachMaximumList": lambda: [several(), several(), several()],
    "aclnnForeachNonFiniteCheckAndUnscale": lambda: [several(), f(1), f(1)],
    "aclnnForeachNorm": lambda: [several(), 2.0, several((), ())],
    "aclnnForeachSqrt": lambda: [several(), several()],
    "aclnnForeachZeroInplace": lambda: [several()],
    "aclnnAmpUpdateScale": lambda: [f(1), z(1, dtype=INT), f(1), 2.0, 0.5, 3, f(1), z(1, dtype=INT)],
    "aclnnApplyAdamWV2": lambda: [
        f(2, 3),
        f(2, 3),
        f(2, 3),
        f(2, 3),
        f(2, 3),
        f(1),
        0.1,
        0.9,
        0.99,
        0.01,
        1e-8,
        True,
        False,
    ],
    **LAYER_CALLS,
}
