"""exact.py NETWORK DEVICE: how far the first gradients are from float64's, of torch in float32 and of MindSpore op by op, on
Ascend also compiled; a line of JSON with the largest difference and, of the parameter that is worst, the norm of the
difference over the gradient's. The form "wrong" is MindSpore's with one gradient changed by 1e-4 of itself."""

import copy
import json
import os
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.dirname(__file__))
torch.set_num_threads(1)
import mindspore as ms  # noqa: E402

ms.set_device(sys.argv[2])
from pairs import F, M, made  # noqa: E402

theirs, ours, x, y = made(sys.argv[1])


def by_torch(net, x):
    F.cross_entropy(net(x), y).backward()
    return [each.grad.double().numpy() for each in net.parameters()]


def by_mindspore(compiled):
    ours.set_train()

    def forward(x, y):
        return M.cross_entropy(ours(x), y)

    grad = ms.value_and_grad(forward, None, ours.trainable_params())
    grad = ms.jit(grad, jit_level="O0") if compiled else grad
    _, slopes = grad(ms.Tensor(x.numpy()), ms.Tensor(y.numpy()))
    return [each.asnumpy().astype(np.float64) for each in slopes]


exact = by_torch(copy.deepcopy(theirs).double(), x.double())
forms = {"torch": by_torch(theirs, x), "pynative": by_mindspore(False)}
if sys.argv[2] == "Ascend":
    forms["jit"] = by_mindspore(True)
forms["wrong"] = [forms["pynative"][0] * (1 + 1e-4), *forms["pynative"][1:]]
print(
    json.dumps(
        {
            name: [
                max(float(np.abs(a - b).max()) for a, b in zip(found, exact, strict=True)),
                max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(found, exact, strict=True)),
            ]
            for name, found in forms.items()
        }
    )
)
