"""For programs that compare MindSpore's values and gradients with torch's in float64: a case is MindSpore's function, torch's,
what of, and perhaps a network of each, whose weights are made equal and whose gradients are compared, too. One line of JSON
per case, with the largest difference of the values and of the gradients, relative to the largest number where that is > 1."""

import json
import sys

import mindspore as ms
import numpy as np
import torch
from mindspore import Tensor, mint

RNG = np.random.RandomState(3)


def drawn(*sizes):
    return np.asarray(RNG.randn(*sizes), np.float32)


def listed(slopes):
    return [slopes] if isinstance(slopes, Tensor) else list(slopes)


def apart(found, expected):
    return float(np.abs(found.asnumpy() - expected).max()) / max(1.0, float(np.abs(expected).max()))


def same_weights(ours, theirs):
    state = dict(theirs.named_parameters())
    for each in ours.trainable_params():
        value = state.get(each.name, state.get("weight"))
        each.set_data(Tensor(value.detach().float().numpy()))
    with torch.no_grad():
        for each, value in zip(ours.trainable_params(), state.values(), strict=True):
            value.copy_(torch.from_numpy(each.asnumpy()).double())


def compared(function, expected, inputs, ours=None, theirs=None):
    if ours is not None:
        same_weights(ours, theirs)
    of = ours.trainable_params() if ours is not None else []
    wide = [torch.from_numpy(each).double().requires_grad_() for each in inputs]
    there = expected(*wide)
    weight = drawn(*there.shape)
    (there * torch.from_numpy(weight).double()).sum().backward()
    weight = Tensor(weight)

    def forward(*x):
        value = function(*x)
        return mint.sum(value * weight), value

    grad = ms.value_and_grad(forward, tuple(range(len(inputs))), of or None, has_aux=True)
    (_, here), slopes = grad(*[Tensor(each) for each in inputs])
    slopes = [*listed(slopes[0]), *listed(slopes[1])] if of else listed(slopes)
    others = [each.grad for each in wide] + [each.grad for each in (theirs.parameters() if theirs else [])]
    return [apart(here, there.detach().numpy()), max(apart(a, b.numpy()) for a, b in zip(slopes, others, strict=True))]


def main(cases):
    ms.set_device("Ascend")
    for name in sys.argv[1:] or cases:
        try:
            print(json.dumps({"case": name, "said": compared(*cases[name])}), flush=True)
        except Exception as error:
            print(json.dumps({"case": name, "error": str(error)[:1000]}), flush=True)
