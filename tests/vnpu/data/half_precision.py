"""What mixed precision does on a device ("cuda" for the reference, "npu" for the port): dtypes, and a short training.

Prints JSON. The data come from the host, so that they are the same everywhere.
"""

import json
import sys

import torch
import torch.nn.functional as functional
from torch import nn

DEVICE = sys.argv[1]


def operators(dtype):
    """The dtype of the result of each operator in an autocast region."""
    torch.manual_seed(0)
    x, image, labels = torch.rand(4, 4).to(DEVICE), torch.rand(2, 2, 6, 6).to(DEVICE), torch.zeros(4).long().to(DEVICE)
    low, picture = x.to(dtype), image.to(dtype)

    def layer(module, *given):
        result = module.to(DEVICE)(*given)
        return result if isinstance(result, torch.Tensor) else result[0]

    calls = {
        "matmul": lambda: x @ x,
        "linear": lambda: functional.linear(x, x),
        "addmm": lambda: torch.addmm(x, x, x),
        "bmm": lambda: torch.bmm(x[None], x[None]),
        "baddbmm": lambda: torch.baddbmm(x[None], x[None], x[None]),
        "einsum": lambda: torch.einsum("ij,jk->ik", x, x),
        "conv2d": lambda: layer(nn.Conv2d(2, 3, 3), image),
        "conv_transpose2d": lambda: layer(nn.ConvTranspose2d(2, 3, 2), image),
        "prelu": lambda: layer(nn.PReLU(), x),
        "attention": lambda: functional.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
        "multihead": lambda: layer(nn.MultiheadAttention(4, 2), x[None], x[None], x[None]),
        "lstm": lambda: layer(nn.LSTM(4, 4), x[None]),
        "gru": lambda: layer(nn.GRU(4, 4), x[None]),
        "rnn": lambda: layer(nn.RNN(4, 4), x[None]),
        "lstm cell": lambda: layer(nn.LSTMCell(4, 4), x),
        "gru cell": lambda: layer(nn.GRUCell(4, 4), x),
        "relu": lambda: functional.relu(low),
        "gelu": lambda: functional.gelu(low),
        "silu": lambda: functional.silu(low),
        "sigmoid": lambda: low.sigmoid(),
        "tanh": lambda: low.tanh(),
        "cos": lambda: low.cos(),
        "sqrt": lambda: low.sqrt(),
        "batch_norm": lambda: layer(nn.BatchNorm2d(2), picture),
        "max_pool2d": lambda: functional.max_pool2d(picture, 2),
        "avg_pool2d": lambda: functional.avg_pool2d(picture, 2),
        "dropout": lambda: functional.dropout(low, 0.5),
        "mean": lambda: low.mean(),
        "add": lambda: low + x,
        "mul": lambda: low * low,
        "cat": lambda: torch.cat([low, x]),
        "stack": lambda: torch.stack([low, x]),
        "where": lambda: torch.where(x > 0.5, low, x),
        "embedding": lambda: functional.embedding(labels, x),
        "addcmul": lambda: torch.addcmul(x, low, low),
        "softmax": lambda: functional.softmax(low, -1),
        "log_softmax": lambda: functional.log_softmax(low, -1),
        "layer_norm": lambda: functional.layer_norm(low, (4,)),
        "group_norm": lambda: functional.group_norm(picture, 2),
        "exp": lambda: low.exp(),
        "log": lambda: low.log(),
        "pow": lambda: low.pow(2),
        "rsqrt": lambda: low.rsqrt(),
        "softplus": lambda: functional.softplus(low),
        "sum": lambda: low.sum(),
        "sum of rows": lambda: low.sum(1),
        "cumsum": lambda: low.cumsum(0),
        "prod": lambda: low.prod(),
        "norm": lambda: low.norm(),
        "norm of rows": lambda: torch.norm(low, dim=1),
        "vector_norm": lambda: torch.linalg.vector_norm(low),
        "logsumexp": lambda: low.logsumexp(0),
        "cross_entropy": lambda: functional.cross_entropy(low, labels),
        "mse_loss": lambda: functional.mse_loss(low, low),
        "l1_loss": lambda: functional.l1_loss(low, low),
        "smooth_l1_loss": lambda: functional.smooth_l1_loss(low, low),
        "bce_with_logits": lambda: functional.binary_cross_entropy_with_logits(low, low),
        "bce": lambda: functional.binary_cross_entropy(low, low),
        "kl_div": lambda: functional.kl_div(low, low),
        "cosine_similarity": lambda: functional.cosine_similarity(low, low),
        "bilinear": lambda: functional.interpolate(picture, scale_factor=2, mode="bilinear"),
        "nearest": lambda: functional.interpolate(picture, scale_factor=2),
        "rms_norm": lambda: functional.rms_norm(low, (4,)),
    }
    found = {}
    with torch.autocast(DEVICE, dtype=dtype):
        for name, call in calls.items():
            try:
                found[name] = str(call().dtype)
            except RuntimeError as error:
                found[name] = "refused" if "unsafe to autocast" in str(error) else "failed"
    return found


def training(dtype, scale):
    """Losses, gradient norms and scales of a few steps of a small convolutional network."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 32), nn.LayerNorm(32),
        nn.GELU(), nn.Linear(32, 4),
    ).to(DEVICE)  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=scale, growth_interval=4)
    x, y = torch.randn(32, 1, 8, 8).to(DEVICE), torch.randint(0, 4, (32,)).to(DEVICE)
    rows = []
    for _ in range(12):
        with torch.autocast(DEVICE, dtype=dtype):
            loss = functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        rows.append([loss.item(), norm.item(), scaler.get_scale()])
    return rows


if DEVICE == "npu":
    import torch_npu  # noqa: F401

half, brain = torch.float16, torch.bfloat16
result = {
    "operators": {"float16": operators(half), "bfloat16": operators(brain)},
    "training": {
        "float16": training(half, 2.0**10),
        "bfloat16": training(brain, 2.0**10),
        "float16 that overflows": training(half, 2.0**30),
    },
}
print(json.dumps(result))
