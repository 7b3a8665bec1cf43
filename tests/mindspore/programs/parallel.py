"""Each rank of msrun: a product whose operands MindSpore lays onto the ranks, as MODE says; what came of it as JSON."""

import json
import os
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.communication import get_rank, init

MODE = os.environ["MODE"]
ms.set_context(mode=ms.GRAPH_MODE, jit_config={"jit_level": "O0"})
ms.set_device("Ascend")
init("hccl")
search = {"search_mode": "recursive_programming"} if MODE == "auto_parallel" else {}
ms.set_auto_parallel_context(parallel_mode=MODE, dataset_strategy="full_batch", **search)
WEIGHT = np.arange(32, dtype=np.float32).reshape(8, 4) / 32
ROWS = np.arange(32, dtype=np.float32).reshape(4, 8) / 8


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(WEIGHT), name="weight")
        self.product = ops.MatMul()
        if MODE == "semi_auto_parallel":
            self.product.shard(((1, 2), (2, 1)))  # the sum over 8 is of two halves: an AllReduce

    def construct(self, x):
        return self.product(x, self.weight)


try:
    found = Net()(Tensor(ROWS)).asnumpy()
    said = {"apart": float(np.abs(found - ROWS.astype(np.float64) @ WEIGHT).max())}
except Exception as error:
    said = {"error": str(error)[:2000]}
Path(os.environ["SAID"], f"{get_rank()}.json").write_text(json.dumps(said))
