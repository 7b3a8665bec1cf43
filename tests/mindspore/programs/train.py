"""train.py NETWORK [DEVICE [FILE]]: ten steps in torch, in MindSpore op by op and in MindSpore compiled (jit, O0); one line of
JSON with the losses and the gradients' largest difference in the first step; FILE keeps these gradients."""

import json
import os
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.dirname(__file__))
torch.set_num_threads(1)
import mindspore as ms  # noqa: E402

ms.set_device(sys.argv[2] if len(sys.argv) > 2 else "Ascend")
from pairs import F, M, made  # noqa: E402

STEPS, RATE = 10, 0.02


def torchs(name):
    net, _, x, y = made(name)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    losses, first = [], None
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        first = first or [each.grad.clone().numpy() for each in net.parameters()]
        optimizer.step()
        losses.append(loss.item())
    return losses, first


def mindspores(name, compiled):
    _, net, x, y = made(name)
    net.set_train()
    x, y = ms.Tensor(x.numpy()), ms.Tensor(y.numpy())
    optimizer = M.SGD(net.trainable_params(), RATE)

    def forward(x, y):
        return M.cross_entropy(net(x), y)

    grad = ms.value_and_grad(forward, None, net.trainable_params())
    if compiled:
        grad = ms.jit(grad, jit_level="O0")
    losses, first = [], None
    for _ in range(STEPS):
        loss, slopes = grad(x, y)
        first = first or [each.asnumpy().copy() for each in slopes]
        optimizer(slopes)
        losses.append(float(loss.asnumpy()))
    return losses, first


def apart(one, other):
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


losses, slopes = torchs(sys.argv[1])
said = {"torch": losses, "largest": max(float(np.abs(each).max()) for each in slopes)}
for mode, compiled in (("pynative", False), ("jit", True)):
    found, first = mindspores(sys.argv[1], compiled)
    said[mode] = found
    said[f"{mode}_gradients"] = apart(first, slopes)
    if sys.argv[3:]:
        np.savez(f"{sys.argv[3]}_{mode}", *first)
print(json.dumps(said))
