"""cases.py NAME...: small programs of MindSpore users on the virtual NPU; one line of JSON per case."""

import json
import sys

import mindspore as ms
import numpy as np
import torch
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore.amp import DynamicLossScaler, all_finite, auto_mixed_precision

RNG = np.random.RandomState(0)


def tensor(*sizes):
    return Tensor(RNG.randn(*sizes).astype(np.float32))


class Net(nn.Cell):
    def __init__(self, layers=mint.nn):
        super().__init__()
        self.c = mint.nn.Conv2d(1, 6, 5)
        self.b = mint.nn.BatchNorm2d(6)
        self.f = mint.nn.Linear(6 * 24 * 24, 10)

    def construct(self, x):
        x = ops.relu(self.b(self.c(x)))
        return self.f(x.reshape(x.shape[0], -1))


def losses(net, scaler=None, steps=4, dtype=ms.float32):
    x, y = tensor(8, 1, 28, 28), Tensor(RNG.randint(0, 10, 8).astype(np.int64))

    def forward(x, y):
        loss = mint.nn.functional.cross_entropy(net(x).astype(ms.float32), y)
        return scaler.scale(loss) if scaler else loss

    grad = ms.value_and_grad(forward, None, net.trainable_params())
    optimizer = mint.optim.SGD(net.trainable_params(), lr=0.01)
    found = []
    for _ in range(steps):
        loss, slopes = grad(x, y)
        if scaler:
            loss, slopes = scaler.unscale(loss), scaler.unscale(slopes)
            assert bool(all_finite(slopes).asnumpy())
            scaler.adjust(Tensor(True))
        optimizer(slopes)
        found.append(float(loss.asnumpy()))
    return found


def amp(level, dtype):
    global RNG
    RNG = np.random.RandomState(0)
    ms.set_seed(0)
    net = auto_mixed_precision(Net(), level, dtype)
    net.set_train()
    return losses(net, DynamicLossScaler(1024, 2, 50))


def plain():
    global RNG
    RNG = np.random.RandomState(0)
    ms.set_seed(0)
    net = Net()
    net.set_train()
    return losses(net)


def scaling():
    """The scale halves at an infinite gradient and doubles after `window` good ones."""
    scaler = DynamicLossScaler(1024, 2, 2)
    said = []
    for finite in (False, True, True, True):
        scaler.adjust(Tensor(finite))
        said.append(float(scaler.scale_value.asnumpy()))
    bad = all_finite([Tensor(np.array([1, np.inf], np.float32))])
    return [said, bool(bad.asnumpy()), bool(all_finite([tensor(3)]).asnumpy())]


def by_torch(made, start, slopes):
    """Where an optimizer of torch gets to in float64."""
    parameters = [torch.nn.Parameter(torch.from_numpy(each).double()) for each in start]
    step = made(parameters)
    for gradients in slopes:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = torch.from_numpy(gradient).double()
        step.step()
    return [each.detach().numpy() for each in parameters]


def by_hand(step, start, slopes):
    """The same of a step of our own, which gets the variable, the gradient and what it has kept."""
    found, kept = [each.astype(np.float64) for each in start], [{} for _ in start]
    for gradients in slopes:
        found = [step(v, g.astype(np.float64), k) for v, g, k in zip(found, gradients, kept, strict=True)]
    return found


def adam_weight_decay(v, g, kept):  # without correction
    kept["m"], kept["v"] = (0.9 * kept.get("m", 0) + 0.1 * g, 0.999 * kept.get("v", 0) + 0.001 * g * g)
    return v - 0.01 * kept["m"] / (np.sqrt(kept["v"]) + 1e-6)


def ftrl(v, g, kept):
    before = kept.get("squares", 0.1)
    kept["squares"] = before + g * g
    root = np.sqrt(kept["squares"])
    kept["linear"] = kept.get("linear", 0) + g - (root - np.sqrt(before)) / 0.01 * v
    return -kept["linear"] / (root / 0.01)


def rms_prop(v, g, kept):  # MindSpore's mean of squares begins with 1
    kept["squares"] = 0.9 * kept.get("squares", 1.0) + 0.1 * g * g
    return v - 0.01 * g / np.sqrt(kept["squares"] + 1e-10)


def rms_prop_centered(v, g, kept):
    kept["squares"] = 0.9 * kept.get("squares", 1.0) + 0.1 * g * g
    kept["mean"] = 0.9 * kept.get("mean", 0) + 0.1 * g
    return v - 0.01 * g / np.sqrt(kept["squares"] - kept["mean"] ** 2 + 1e-10)


def adam_amsgrad(v, g, kept):  # the largest second moment is not corrected, but the rate, as in TensorFlow
    step = kept["step"] = kept.get("step", 0) + 1
    kept["m"], kept["v"] = 0.9 * kept.get("m", 0) + 0.1 * g, 0.999 * kept.get("v", 0) + 0.001 * g * g
    kept["top"] = np.maximum(kept.get("top", 0), kept["v"])
    rate = 0.01 * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    return v - rate * kept["m"] / (np.sqrt(kept["top"]) + 1e-8)


def lamb(v, g, kept):
    step = kept["step"] = kept.get("step", 0) + 1
    kept["m"], kept["v"] = 0.9 * kept.get("m", 0) + 0.1 * g, 0.999 * kept.get("v", 0) + 0.001 * g * g
    update = kept["m"] / (1 - 0.9**step) / (np.sqrt(kept["v"] / (1 - 0.999**step)) + 1e-6)
    w, u = np.linalg.norm(v), np.linalg.norm(update)
    return v - 0.01 * (w / u if w > 0 and u > 0 else 1) * update


def of_torch(name, **options):
    return lambda start, slopes: by_torch(lambda p: getattr(torch.optim, name)(p, lr=0.01, **options), start, slopes)


EXPECTED = {
    "SGD": of_torch("SGD", momentum=0.9),
    "Momentum": of_torch("SGD", momentum=0.9),
    "Adam": of_torch("Adam"),
    "AdamW": of_torch("AdamW"),
    "AdamWeightDecay": lambda start, slopes: by_hand(adam_weight_decay, start, slopes),
    "Adagrad": of_torch("Adagrad", initial_accumulator_value=0.1),
    "RMSProp": lambda start, slopes: by_hand(rms_prop, start, slopes),
    "Adadelta": of_torch("Adadelta", eps=1e-6),
    "AdaMax": of_torch("Adamax"),
    "FTRL": lambda start, slopes: by_hand(ftrl, start, slopes),
    "ProximalAdagrad": of_torch("Adagrad", initial_accumulator_value=0.1),
    "Rprop": of_torch("Rprop"),
    "centered RMSProp": lambda start, slopes: by_hand(rms_prop_centered, start, slopes),
    "amsgrad Adam": lambda start, slopes: by_hand(adam_amsgrad, start, slopes),
    "Lamb": lambda start, slopes: by_hand(lamb, start, slopes),
}
OPTIONS = {
    "SGD": {"momentum": 0.9},
    "Momentum": {"momentum": 0.9},
    "centered RMSProp": {"centered": True},
    "amsgrad Adam": {"use_amsgrad": True},
}


def optimizer(name, library):
    """The losses of three steps, how far the weights are then from float64's, and how far they have come."""
    layer = mint.nn.Linear(4, 3) if library is mint.optim else nn.Dense(4, 3)
    parameters = layer.trainable_params()
    options = OPTIONS.get(name, {})
    rate = {"lr": 0.01} if library is mint.optim else {"learning_rate": 0.01}
    step = getattr(library, name.split()[-1])(parameters, **rate, **options)
    x = tensor(2, 4)
    grad = ms.value_and_grad(lambda x: mint.sum(layer(x) ** 2), None, parameters)
    start, slopes, found = [each.asnumpy().copy() for each in parameters], [], []
    for _ in range(3):
        loss, gradients = grad(x)
        slopes.append([each.asnumpy().copy() for each in gradients])
        step(gradients)
        found.append(float(loss.asnumpy()))
    expected = EXPECTED[name](start, slopes)
    apart = max(float(np.abs(e - p.asnumpy()).max()) for e, p in zip(expected, parameters, strict=True))
    moved = max(float(np.abs(e - s).max()) for e, s in zip(expected, start, strict=True))
    return [found, apart, moved]


def has_aux():
    layer = mint.nn.Linear(4, 2)

    def forward(x):
        y = layer(x)
        return mint.sum(y * y), y

    grad = ms.value_and_grad(forward, None, layer.trainable_params(), has_aux=True)
    x = tensor(3, 4)
    (loss, y), slopes = grad(x)
    expected = 2 * y.asnumpy().T @ x.asnumpy()
    return [float(loss.asnumpy() - (y.asnumpy() ** 2).sum()), float(np.abs(slopes[0].asnumpy() - expected).max())]


def clip():
    values = [tensor(3, 4), tensor(5)]
    norm = np.sqrt(sum((each.asnumpy() ** 2).sum() for each in values))
    clipped = ops.clip_by_global_norm(values, 1.0)
    return float(max(np.abs(c.asnumpy() - v.asnumpy() / norm).max() for c, v in zip(clipped, values, strict=True)))


def rate_by_assign():
    """The guide: a learning rate in a Parameter, changed with ops.assign, also by a schedule of one's own."""
    layer = mint.nn.Linear(4, 1)
    step = mint.optim.SGD(layer.trainable_params(), lr=Parameter(Tensor(0.1, ms.float32), name="lr"))
    ops.assign(step.param_groups[0]["lr"], 0.05)
    before = layer.weight.asnumpy().copy()
    step((mint.ones_like(layer.weight), mint.ones_like(layer.bias)))
    return [float(step.param_groups[0]["lr"].asnumpy()), float((before - layer.weight.asnumpy()).max())]


def one_by_one(code):
    values = {"x": tensor(2, 4), "img": tensor(2, 3, 8, 8), "ids": Tensor(np.array([[0, 1]], np.int32))}
    scope = {**globals(), **values}
    exec(code, scope)
    y = scope["y"]
    return float(np.abs(y.asnumpy().astype(np.float64) - scope["expected"]).max())


def dropped(layer, *sizes):
    """How far values and gradients are from those of whole channels, kept with half the probability; the share of them."""
    x = tensor(*sizes) + 9
    layer.set_train()

    def forward(x):
        y = layer(x)
        return mint.sum(y), y

    (_, y), slope = ms.value_and_grad(forward, has_aux=True)(x)
    y, slope = y.asnumpy(), slope.asnumpy()
    kept = (y != 0).reshape(*sizes[:2], -1)
    whole = kept.all(2) | ~kept.any(2)
    apart = max(np.abs(y - 2 * x.asnumpy() * (y != 0)).max(), np.abs(slope - 2 * (y != 0)).max())
    return [float(apart), bool(whole.all()), float(kept.mean())]


LAYERS = {
    "dense": "d = nn.Dense(4, 3); y = d(x); expected = x.asnumpy() @ d.weight.asnumpy().T + d.bias.asnumpy()",
    "max pool": "y = nn.MaxPool2d(2, 2)(img); expected = img.asnumpy().reshape(2, 3, 4, 2, 4, 2).max((3, 5))",
    "mean pool": "y = nn.AvgPool2d(2, 2)(img); expected = img.asnumpy().reshape(2, 3, 4, 2, 4, 2).mean((3, 5))",
    "norm": "y = nn.LayerNorm((4,))(x); v = x.asnumpy(); expected = (v - v.mean(1, keepdims=True)) / np.sqrt(v.var(1, keepdims=True) + 1e-7)",
    "embedding": "e = nn.Embedding(5, 4); y = e(ids); expected = e.embedding_table.asnumpy()[ids.asnumpy()]",
    "relu6": "y = nn.ReLU6()(x * 9); expected = np.clip(x.asnumpy() * 9, 0, 6)",
    "one hot": "y = ops.one_hot(ids, 3, Tensor(1.0), Tensor(0.0)); expected = np.eye(3)[ids.asnumpy()]",
    "cumsum": "y = ops.cumsum(x, 1); expected = x.asnumpy().cumsum(1)",
    "gather nd": "y = ops.gather_nd(x, Tensor([[0, 1], [1, 2]])); expected = x.asnumpy()[[0, 1], [1, 2]]",
    "scatter": "y = ops.tensor_scatter_update(x, Tensor([[1]]), Tensor(np.ones((1, 4), np.float32))); expected = x.asnumpy().copy(); expected[1] = 1",
    "max pool padded": "y = nn.MaxPool2d(3, 2, 'pad', 1)(img); v = np.pad(img.asnumpy(), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf); expected = np.lib.stride_tricks.sliding_window_view(v, (3, 3), (2, 3))[:, :, ::2, ::2].max((4, 5))",
    "split": "y = ops.split(img, 4, 2)[1]; expected = img.asnumpy()[:, :, 4:]",
    "batch norm": "b = nn.BatchNorm2d(3); b.set_train(); y = b(img); v = img.asnumpy(); expected = (v - v.mean((0, 2, 3), keepdims=True)) / np.sqrt(v.var((0, 2, 3), keepdims=True) + 1e-5)",
}

CASES = {
    "plain": plain,
    **{
        f"amp {level} {dtype}": (lambda level=level, dtype=dtype: amp(level, dtype))
        for level, dtype in (
            ("O1", ms.float16),
            ("O2", ms.float16),
            ("O3", ms.float16),
            ("auto", ms.bfloat16),
            ("O2", ms.bfloat16),
        )
    },
    "scaling": scaling,
    **{f"mint {name}": (lambda name=name: optimizer(name, mint.optim)) for name in ("SGD", "Adam", "AdamW")},
    **{
        f"nn {name}": (lambda name=name: optimizer(name, nn))
        for name in (
            "SGD",
            "Momentum",
            "Adam",
            "AdamWeightDecay",
            "Adagrad",
            "RMSProp",
            "Adadelta",
            "AdaMax",
            "FTRL",
            "ProximalAdagrad",
            "centered RMSProp",
            "amsgrad Adam",
            "Lamb",
            "Rprop",
        )
    },
    "has_aux": has_aux,
    "clip": clip,
    "rate": rate_by_assign,
    "dropout of planes": lambda: dropped(nn.Dropout2d(0.5), 20, 10, 3, 4),
    "dropout of volumes": lambda: dropped(nn.Dropout3d(0.5), 20, 10, 3, 4, 2),
    **{f"layer {name}": (lambda code=code: one_by_one(code)) for name, code in LAYERS.items()},
}

if __name__ == "__main__":
    ms.set_device("Ascend")
    # nn.Rprop is compiled with a branch, which MindSpore refuses where it has one thread, as on two cores.
    ms.runtime.dispatch_threads_num(2)
    for name in sys.argv[1:] or CASES:
        try:
            print(json.dumps({"case": name, "said": CASES[name]()}), flush=True)
        except Exception as error:
            print(json.dumps({"case": name, "error": str(error)[:1000]}), flush=True)
