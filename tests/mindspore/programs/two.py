"""Each rank of msrun: collectives, and data parallel training whose weights are those of one process."""

import json
import os

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops
from mindspore.communication import get_group_size, get_rank, init

ms.set_device("Ascend")
init("hccl")
rank, size = get_rank(), get_group_size()
summed = ops.AllReduce()(Tensor(np.full(4, rank + 1.0, np.float32))).asnumpy()
ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)

rng = np.random.RandomState(3)
whole, target = rng.randn(8, 4).astype(np.float32), rng.randn(8, 2).astype(np.float32)
weight, bias = rng.randn(2, 4).astype(np.float32), np.zeros(2, np.float32)
share = 8 // size


def trained(x, y, reduce):
    net = mint.nn.Linear(4, 2)
    net.weight.set_data(Tensor(weight))
    net.bias.set_data(Tensor(bias))
    parameters = net.trainable_params()
    grad = ms.value_and_grad(lambda x, y: mint.mean((net(x) - y) ** 2), None, parameters)
    step = mint.optim.SGD(parameters, lr=0.1)
    reducer = nn.DistributedGradReducer(parameters) if reduce else None
    for _ in range(5):
        _, slopes = grad(Tensor(x), Tensor(y))
        step(reducer(slopes) if reduce else slopes)
    return net.weight.asnumpy()


mine = slice(rank * share, (rank + 1) * share)
together = trained(whole[mine], target[mine], True)
alone = trained(whole, target, False)
said = {"rank": rank, "size": size, "sum": summed.tolist(), "apart": float(np.abs(together - alone).max())}
with open(os.path.join(os.environ["SAID"], f"{rank}.json"), "w") as file:
    json.dump(said, file)
