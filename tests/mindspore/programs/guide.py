"""What the guide tells of training in MindSpore, as MindSpore's code; one line of JSON per statement."""

import json
import math

import mindspore as ms
import numpy as np
import torch
from mindspore import Parameter, Tensor, mint, ops
from mindspore.experimental import optim
from mindspore.experimental.optim import lr_scheduler

RNG = np.random.RandomState(0)


def tensor(*sizes):
    return Tensor(RNG.randn(*sizes).astype(np.float32))


def weights(layer):
    return layer.weight.asnumpy().astype(np.float64)


def rate_in_a_graph():
    """In a graph the rate is a Parameter that ops.assign changes, without compiling again: what two steps have moved."""
    layer = mint.nn.Linear(4, 1)
    step = mint.optim.SGD(layer.trainable_params(), lr=Parameter(Tensor(0.1, ms.float32), name="lr"))

    def forward(x):
        return mint.sum(layer(x))

    grad = ms.value_and_grad(forward, None, layer.trainable_params())

    @ms.jit(jit_level="O0")
    def train(x):
        loss, slopes = grad(x)
        step(slopes)
        return loss

    x, moved = tensor(3, 4), []
    for rate in (0.1, 0.05):
        ops.assign(step.param_groups[0]["lr"], rate)
        before = weights(layer)
        train(x)
        moved.append(float(np.abs((before - weights(layer)) / rate - x.asnumpy().sum(0)).max()))
    return moved


class Slow(optim.optimizer.Optimizer):
    """An optimizer of one's own, whose step gets the gradients."""

    def __init__(self, params, lr=1e-3, alpha=0.5):
        super().__init__(params, {"lr": lr, "alpha": alpha})

    def construct(self, gradients):
        for number, group in enumerate(self.param_groups):
            first = self.group_start_id[number]
            for i, parameter in enumerate(group["params"]):
                ops.assign(parameter, parameter - group["lr"] * group["alpha"] * gradients[first + i])
        return True


def own_optimizer():
    layer = mint.nn.Linear(4, 1)
    step = Slow(layer.trainable_params(), lr=0.1)
    before = weights(layer)
    step((mint.ones_like(layer.weight), mint.ones_like(layer.bias)))
    return float(np.abs(before - 0.05 - weights(layer)).max())


class Warm:
    """A schedule of one's own: the Transformer's, which ops.assign brings into the optimizer."""

    def __init__(self, optimizer, width, steps):
        self.optimizer, self.width, self.steps, self.done = optimizer, width, steps, 0

    def step(self):
        self.done += 1
        rate = self.width**-0.5 * min(self.done**-0.5, self.done * self.steps**-1.5)
        for group in self.optimizer.param_groups:
            ops.assign(group["lr"], rate)


def own_schedule():
    step = optim.SGD(mint.nn.Linear(4, 1).trainable_params(), lr=0.1)
    schedule, found = Warm(step, 64, 3), []
    for _ in range(5):
        schedule.step()
        found.append(float(step.param_groups[0]["lr"].asnumpy()))
    expected = [0.125 * min(1 / math.sqrt(n), n * 3**-1.5) for n in range(1, 6)]
    return max(abs(a - b) for a, b in zip(found, expected, strict=True))


def schedules():
    """The library's, over ten steps beside torch's."""
    apart = {}
    for name, options in {
        "StepLR": {"step_size": 3, "gamma": 0.5},
        "ExponentialLR": {"gamma": 0.9},
        "CosineAnnealingLR": {"T_max": 8},
        "MultiStepLR": {"milestones": [2, 6], "gamma": 0.2},
        "LinearLR": {"start_factor": 0.5, "total_iters": 4},
    }.items():
        theirs = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        there = getattr(torch.optim.lr_scheduler, name)(theirs, **options)
        ours = optim.SGD(mint.nn.Linear(4, 1).trainable_params(), lr=0.1)
        here, rates = getattr(lr_scheduler, name)(ours, **options), []
        for _ in range(10):
            theirs.step()
            there.step()
            here.step()
            rates.append(abs(float(ours.param_groups[0]["lr"].asnumpy()) - theirs.param_groups[0]["lr"]))
        apart[name] = max(rates)
    return apart


def aux_in_a_graph():
    """value_and_grad with has_aux: of the results only the first is differentiated, also compiled."""
    layer = mint.nn.Linear(4, 2)

    def forward(x, y):
        logits = layer(x)
        return mint.mean((logits - y) ** 2), logits

    grad = ms.value_and_grad(forward, None, layer.trainable_params(), has_aux=True)
    x, y = tensor(3, 4), tensor(3, 2)
    apart = []
    for function in (grad, ms.jit(grad, jit_level="O0")):
        (loss, logits), slopes = function(x, y)
        error = logits.asnumpy().astype(np.float64) - y.asnumpy()
        apart += [
            abs(float(loss.asnumpy()) - (error**2).mean()),
            float(np.abs(slopes[0].asnumpy() - 2 * error.T @ x.asnumpy() / error.size).max()),
        ]
    return max(apart)


if __name__ == "__main__":
    ms.set_device("Ascend")
    for each in (rate_in_a_graph, own_optimizer, own_schedule, schedules, aux_in_a_graph):
        try:
            print(json.dumps({"case": each.__name__, "said": each()}), flush=True)
        except Exception as error:
            print(json.dumps({"case": each.__name__, "error": str(error)[:1000]}), flush=True)
