"""draws.py SEED: MindSpore's draws from a seed; one line of JSON for each, with its numbers. mint's take a generator of their
own and are not among them."""

import json
import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

RATES = Tensor([[0.5, 30.0]], ms.float32)
WEIGHTS = Tensor([[1.0, 2.0, 1.0]], ms.float32)
ROWS = Tensor(np.arange(24).reshape(12, 2).astype(np.float32))


def dropped(layer, *sizes):
    layer.set_train()
    return layer(ops.ones(sizes, ms.float32))


# What is drawn, and again by the same call.
CASES = {
    "laplace": lambda seed: ops.standard_laplace((3, 4), seed=seed),
    "laplace around": lambda seed: ops.laplace((3, 4), Tensor(1.0), Tensor(2.0), seed=seed),
    "gamma": lambda seed: ops.gamma((3, 2), Tensor([1.0, 9.0]), Tensor([2.0, 0.5]), seed=seed),
    "poisson": lambda seed: ops.random_poisson(Tensor([5], ms.int32), RATES, seed=seed),
    "integers": lambda seed: ops.uniform((3, 4), Tensor(-5, ms.int32), Tensor(100, ms.int32), seed, ms.int32),
    "truncated": lambda seed: ops.TruncatedNormal(seed=seed, seed2=1)(Tensor([3, 4], ms.int32)),
    "categories": lambda seed: ops.multinomial(WEIGHTS, 40, True, seed),
    "categories of logits": lambda seed: ops.random_categorical(WEIGHTS, 40, seed),
    "permutation": lambda seed: ops.randperm(20, seed, 3),
    "permutation of a number": lambda seed: ops.Randperm(20, 20)(Tensor([20], ms.int32)),
    "shuffled": lambda seed: ops.shuffle(ROWS, seed),
    "chosen": lambda seed: ops.choice_with_mask(ROWS > 4, 8, seed)[0],
    "candidates": lambda seed: ops.uniform_candidate_sampler(Tensor([[1], [3]]), 1, 6, True, 40, seed)[0],
    "likely candidates": lambda seed: ops.log_uniform_candidate_sampler(Tensor([[1], [3]]), 1, 6, True, 40, seed)[0],
    "planes": lambda seed: dropped(nn.Dropout2d(0.5), 8, 8, 1, 2),
    "volumes": lambda seed: dropped(nn.Dropout3d(0.5), 8, 8, 1, 2, 1),
}


if __name__ == "__main__":
    ms.set_device("Ascend")
    ms.set_seed(1)
    for name, draw in CASES.items():
        try:
            said = [draw(int(sys.argv[1])).asnumpy().astype(float).flatten().tolist() for _ in range(2)]
            print(json.dumps({"case": name, "said": said}), flush=True)
        except Exception as error:
            print(json.dumps({"case": name, "error": str(error)[:1000]}), flush=True)
