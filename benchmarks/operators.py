"""What operators cost on the virtual NPU, relative to their ATen equivalent on the CPU: the slowest ones first.

    python benchmarks/operators.py
    python benchmarks/operators.py aclnnSoftmax aclnnMm --rounds 30 --json

Each line calls one operator that models use (tier 1), forward, in float32 at a medium size (half a million elements).
The two sides take turns in one process with the same number of threads; a turn is five calls and, on the NPU, the
synchronisation after them. Each pair of turns gives a ratio of wall time and one of processor time; the medians are
shown. Processor time says more where other programs run. It judges nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

CALLS = 5  # in a turn

# CANN's operator: (operands, call). Operands: a shape for floats, (shape, n) for integers below n.
Case = tuple[tuple[Any, ...], Callable[..., "Tensor"]]


def cases() -> dict[str, Case]:
    import torch
    from torch.nn import functional as f

    matrix, image, rows = (512, 1024), (8, 64, 32, 32), (4096, 128)
    pair = (matrix, matrix)
    return {
        "aclnnAbs": ((matrix,), torch.abs),
        "aclnnAdd": (pair, torch.add),
        "aclnnAdds": ((matrix,), lambda x: x + 2.5),
        "aclnnAddcdiv": ((matrix,) * 3, lambda x, y, z: torch.addcdiv(x, y, z + 2)),
        "aclnnAddcmul": ((matrix,) * 3, torch.addcmul),
        "aclnnAddmm": (((512,), (512, 512), (512, 512)), torch.addmm),
        "aclnnAll": ((matrix,), lambda x: (x > -9).all()),
        "aclnnArgMax": ((matrix,), lambda x: x.argmax(1)),
        "aclnnAvgPool2d": ((image,), lambda x: f.avg_pool2d(x, 2)),
        "aclnnBatchMatMul": (((16, 128, 128), (16, 128, 128)), torch.bmm),
        "aclnnBatchNorm": ((image,), lambda x: f.batch_norm(x, None, None, training=True)),
        "aclnnBinaryCrossEntropyWithLogits": (pair, f.binary_cross_entropy_with_logits),
        "aclnnCast": ((matrix,), lambda x: x.half()),
        "aclnnCat": (pair, lambda x, y: torch.cat([x, y], 1)),
        "aclnnClamp": ((matrix,), lambda x: x.clamp(-0.5, 0.5)),
        "aclnnConvolution": ((image, (64, 64, 3, 3)), lambda x, w: f.conv2d(x, w, padding=1)),
        "aclnnCos": ((matrix,), torch.cos),
        "aclnnCumsum": ((matrix,), lambda x: x.cumsum(1)),
        "aclnnDiv": ((matrix,), lambda x: x / (x * x + 1)),
        "aclnnEmbedding": ((rows, ((4096,), 4096)), lambda w, i: f.embedding(i, w)),
        "aclnnEqTensor": (pair, torch.eq),
        "aclnnErf": ((matrix,), torch.erf),
        "aclnnExp": ((matrix,), torch.exp),
        "aclnnFlashAttentionScore": (((2, 8, 256, 64),) * 3, f.scaled_dot_product_attention),
        "aclnnFlip": ((matrix,), lambda x: x.flip(1)),
        "aclnnGather": ((matrix, (matrix, 1024)), lambda x, i: x.gather(1, i)),
        "aclnnGelu": ((matrix,), f.gelu),
        "aclnnGeScalar": ((matrix,), lambda x: x >= 0.5),
        "aclnnIndex": ((rows, ((4096,), 4096)), lambda x, i: x[i]),
        "aclnnIndexSelect": ((rows, ((4096,), 4096)), lambda x, i: x.index_select(0, i)),
        "aclnnInplaceCopy": ((matrix,), lambda x: x.t().contiguous()),
        "aclnnL1Loss": (pair, f.l1_loss),
        "aclnnLayerNorm": ((rows, (128,), (128,)), lambda x, w, b: f.layer_norm(x, (128,), w, b)),
        "aclnnLeakyRelu": ((matrix,), f.leaky_relu),
        "aclnnLog": ((matrix,), lambda x: (x * x + 1).log()),
        "aclnnLogSoftmax": ((matrix,), lambda x: x.log_softmax(1)),
        "aclnnMaskedFillScalar": (pair, lambda x, y: x.masked_fill(y > 0, 0.0)),
        "aclnnMatmul": (((4, 256, 256), (256, 256)), torch.matmul),
        "aclnnMaxDim": ((matrix,), lambda x: x.max(1).values),
        "aclnnMaxPool2dWithMask": ((image,), lambda x: f.max_pool2d(x, 2)),
        "aclnnMean": ((matrix,), lambda x: x.mean(1)),
        "aclnnMm": (((512, 512), (512, 512)), torch.mm),
        "aclnnMseLoss": (pair, f.mse_loss),
        "aclnnMul": (pair, torch.mul),
        "aclnnNLLLoss": (((512, 1000), ((512,), 1000)), f.nll_loss),
        "aclnnNeg": ((matrix,), torch.neg),
        "aclnnNonzero": ((matrix,), lambda x: (x > 1).nonzero()),
        "aclnnPowTensorScalar": ((matrix,), lambda x: x**3),
        "aclnnReduceSum": ((matrix,), lambda x: x.sum(0)),
        "aclnnRelu": ((matrix,), torch.relu),
        "aclnnRsqrt": ((matrix,), lambda x: (x * x + 1).rsqrt()),
        "aclnnSWhere": (pair, lambda x, y: torch.where(x > 0, x, y)),
        "aclnnSigmoid": ((matrix,), torch.sigmoid),
        "aclnnSilu": ((matrix,), f.silu),
        "aclnnSmoothL1Loss": (pair, f.smooth_l1_loss),
        "aclnnSoftmax": ((matrix,), lambda x: x.softmax(1)),
        "aclnnSort": (((64, 4096),), lambda x: x.sort(1).values),
        "aclnnSqrt": ((matrix,), lambda x: (x * x).sqrt()),
        "aclnnStd": ((matrix,), lambda x: x.std(1)),
        "aclnnSub": (pair, torch.sub),
        "aclnnTanh": ((matrix,), torch.tanh),
        "aclnnTopk": (((64, 4096),), lambda x: x.topk(50, 1).values),
        "aclnnTriu": (((1024, 1024),), torch.triu),
        "aclnnUpsampleBilinear2d": ((image,), lambda x: f.interpolate(x, scale_factor=2, mode="bilinear")),
        "aclnnUpsampleNearest2d": ((image,), lambda x: f.interpolate(x, scale_factor=2)),
        "aclnnLinalgVectorNorm": ((matrix,), lambda x: torch.linalg.vector_norm(x)),
    }


def operand(spec: Any) -> Tensor:
    import torch

    if isinstance(spec[0], tuple):
        return torch.randint(spec[1], spec[0])
    return torch.randn(spec)


class Side:
    """An operator's call on one device, timed in turns."""

    def __init__(self, case: Case, operands: list[Tensor], device: str) -> None:
        import torch

        self._call = case[1]
        self._operands = [one.to(device) for one in operands]
        self._wait: Callable[[], None] = torch.npu.synchronize if device == "npu" else lambda: None
        self.turn()  # loads kernels

    def turn(self) -> tuple[float, float]:
        """Seconds of wall and of processor time for one call."""
        wall, processor = time.perf_counter(), time.process_time()
        for _ in range(CALLS):
            self._call(*self._operands)
        self._wait()
        return (time.perf_counter() - wall) / CALLS, (time.process_time() - processor) / CALLS


def compare(name: str, case: Case, rounds: int) -> dict[str, object]:
    operands = [operand(spec) for spec in case[0]]
    cpu, npu = Side(case, operands, "cpu"), Side(case, operands, "npu")
    pairs = [(cpu.turn(), npu.turn()) for _ in range(rounds)]
    return {
        "operator": name,
        "cpu_us": statistics.median(base[0] for base, _ in pairs) * 1e6,
        "npu_us": statistics.median(other[0] for _, other in pairs) * 1e6,
        "ratio": statistics.median(other[0] / base[0] for base, other in pairs),
        "processor_ratio": statistics.median(other[1] / base[1] for base, other in pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help="CANN's names (default all)")
    parser.add_argument("--rounds", type=int, default=20, help="pairs of turns (default %(default)s)")
    parser.add_argument(
        "--threads", type=int, default=2, help="threads of computation, both sides (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args()

    from torchport import vnpu

    vnpu.activate()
    import torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    known = cases()
    if unknown := set(args.operators) - known.keys():
        parser.error(f"no case for {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    rows = [compare(name, known[name], args.rounds) for name in args.operators or known]
    rows.sort(key=lambda row: row["processor_ratio"], reverse=True)
    if args.json:
        print(json.dumps({"benchmark": "operators", "threads": args.threads, "rows": rows}))
        return
    for row in rows:
        print(
            f"{row['operator']:34} {row['npu_us']:9.1f} us / {row['cpu_us']:9.1f} us: ratio {row['ratio']:5.2f}, "
            f"of processor time {row['processor_ratio']:5.2f}"
        )


if __name__ == "__main__":
    main()
