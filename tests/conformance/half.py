"""How far operators are from float64 in float16 and bfloat16: torch's CPU kernels and the virtual NPU's.

    python tests/conformance/half.py            measure, print
    python tests/conformance/half.py --update   and write half.json, of which `make docs` makes a page

Results and gradients of each case from the same rounded inputs; the error is the largest of all elements, in units in the
last place of the tensor's largest value, and the largest of the case's tensors counts. 0.5 is what rounding once leaves.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

STORED = Path(__file__).parent / "half.json"
DTYPES = ("float16", "bfloat16")
BAR = 2.0  # of what is ours
Measured = dict[str, dict[str, list[float]]]  # of a case, of a dtype: torch's and ours

# Where ours is past the bar, because something rounded is handed from one call to the next.
HANDED_OVER = {
    "logsumexp": "torch's autograd makes the gradient of the result, which is rounded: exp(x - result)",
    "logcumsumexp": "torch's autograd composes the gradient of several operators, each of which rounds",
}


def cases() -> dict[str, tuple[Callable[..., Any], list[Any]]]:
    """Functions with their arguments in float64; those of floats are differentiated."""
    import torch
    from torch.nn import functional

    generator = torch.Generator().manual_seed(0)

    def of(*shape: int, low: float = -2.0, high: float = 2.0) -> Any:
        return torch.rand(shape, dtype=torch.float64, generator=generator) * (high - low) + low

    def places(count: int, *shape: int) -> Any:
        return torch.randint(0, count, shape, generator=generator)

    rows = of(4096, 64)
    images = of(8, 16, 24, 24)
    return {
        "layer_norm": (lambda x, w, b: functional.layer_norm(x, (64,), w, b), [rows, of(64), of(64)]),
        "rms_norm": (lambda x, w: functional.rms_norm(x, (64,), w), [rows, of(64)]),
        "batch_norm": (lambda x, w, b: functional.batch_norm(x, None, None, w, b, True), [images, of(16), of(16)]),
        "group_norm": (lambda x, w, b: functional.group_norm(x, 4, w, b), [images, of(16), of(16)]),
        "group_norm, 4 elements a group": (
            lambda x, w, b: functional.group_norm(x, 4, w, b),
            [of(512, 16, 1), of(16), of(16)],
        ),
        "softmax": (lambda x: functional.softmax(x, -1) * 64, [rows]),
        "logsumexp": (lambda x: torch.logsumexp(x, -1), [rows]),
        "logcumsumexp": (lambda x: torch.logcumsumexp(x, -1), [of(64, 256, low=-10.0, high=10.0)]),
        "linear": (functional.linear, [rows, of(32, 64), of(32)]),
        "conv2d": (lambda x, w, b: functional.conv2d(x, w, b, padding=1), [images, of(8, 16, 3, 3), of(8)]),
        "conv_transpose2d": (functional.conv_transpose2d, [images, of(16, 8, 3, 3), of(8)]),
        "embedding": (lambda w, i: functional.embedding(i, w), [of(16, 32), places(16, 4096)]),
        "index": (lambda x, i: x[i], [of(16, 32), places(16, 4096)]),
        "gather": (lambda x, i: x.gather(0, i), [of(16, 32), places(16, 4096, 32)]),
        "index_add": (lambda x, i, y: x.index_add(0, i, y), [of(16, 32), places(16, 4096), of(4096, 32)]),
        "sum": (lambda x: x.sum(0), [rows]),
        "mean": (lambda x: x.mean(0), [rows]),
        "var": (lambda x: x.var(0), [rows]),
        "norm": (lambda x: x.norm(dim=0), [rows]),
        "prod": (lambda x: x.prod(-1), [of(256, 256, low=0.97, high=1.03)]),
        "cumsum": (lambda x: x.cumsum(0), [of(4096, 16, low=0.0)]),
        "cumprod": (lambda x: x.cumprod(-1), [of(256, 256, low=0.97, high=1.03)]),
        "broadcast": (lambda x, b: x + b, [rows, of(64)]),
        "mse_loss": (functional.mse_loss, [rows, of(4096, 64)]),
        "kl_div": (
            lambda x, y: functional.kl_div(x, y, reduction="sum"),
            [of(256, 64, low=-4.0, high=0.0), of(256, 64, low=0.1, high=1.0)],
        ),
        "nll_loss": (
            lambda x, i: functional.nll_loss(x, i, reduction="sum"),
            [of(4096, 16, low=-4.0, high=0.0), places(16, 4096)],
        ),
        "cross_entropy": (functional.cross_entropy, [rows, places(64, 4096)]),
        "grid_sample": (
            lambda x, g: functional.grid_sample(x, g, align_corners=False),
            [images, of(8, 48, 48, 2, low=-1.0, high=1.0)],
        ),
        "interpolate": (lambda x: functional.interpolate(x, scale_factor=3, mode="bilinear"), [images]),
        "replication_pad2d": (lambda x: functional.pad(x, (7, 7, 7, 7), mode="replicate"), [images]),
        "unfold": (lambda x: functional.unfold(x, 5, padding=2), [images]),
        "avg_pool2d": (lambda x: functional.avg_pool2d(x, 5, stride=1), [images]),
        "scaled_dot_product_attention": (
            functional.scaled_dot_product_attention,
            [of(2, 4, 128, 32), of(2, 4, 128, 32), of(2, 4, 128, 32)],
        ),
    }


def computed(function: Callable[..., Any], arguments: list[Any], dtype: Any, device: str) -> list[Any]:
    """Result and gradients in float64 on the CPU."""
    import torch

    given = [
        one.to(dtype).to(device).requires_grad_() if one.is_floating_point() else one.to(device) for one in arguments
    ]
    leaves = [one for one in given if one.requires_grad]
    result = function(*given)
    # Of either sign and of eight bits, so that each dtype holds it.
    draws = torch.randint(-255, 256, result.shape, generator=torch.Generator().manual_seed(1))
    cotangent = draws.double() / 128
    gradients = torch.autograd.grad(result, leaves, cotangent.to(dtype).to(device))
    return [one.detach().cpu().double() for one in (result, *gradients)]


def measured(name: str) -> dict[str, list[float]]:
    """Of each dtype the error of torch's CPU kernel, with one thread, and of ours, in units in the last place."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # each of them would round a part of a sum by itself
    try:
        return _measured(name)
    finally:
        torch.set_num_threads(threads)


def _measured(name: str) -> dict[str, list[float]]:
    import torch

    function, arguments = cases()[name]
    row = {}
    for word in DTYPES:
        dtype = getattr(torch, word)
        rounded = [one.to(dtype).double() if one.is_floating_point() else one for one in arguments]
        exact = computed(function, rounded, torch.float64, "cpu")

        def error(device: str, exact: list[Any] = exact, rounded: list[Any] = rounded, dtype: Any = dtype) -> float:
            found = computed(function, rounded, dtype, device)
            worst = 0.0
            for one, wanted in zip(found, exact, strict=True):
                largest = max(float(wanted.abs().max()), torch.finfo(dtype).tiny)
                worst = max(worst, float((one - wanted).abs().max()) / (torch.finfo(dtype).eps * largest))
            return worst

        row[word] = [round(error("cpu"), 1), round(error("npu"), 1)]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="cases (default: all)")
    parser.add_argument("--update", action="store_true", help="write half.json")
    options = parser.parse_args()

    from torchport import vnpu

    vnpu.activate(force=True)
    stored: Measured = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    for name in options.names or cases():
        stored[name] = measured(name)
        print(f"{name:32}", "  ".join(f"{word} {of[0]} {of[1]}" for word, of in stored[name].items()), flush=True)
    if options.update:
        rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(stored[name])}" for name in cases())
        STORED.write_text("{\n" + rows + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
