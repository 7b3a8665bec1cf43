"""impossible.py WHAT: what cannot be on the virtual NPU ends with a sentence, not with a signal."""

import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint

ms.set_device("Ascend")
x = Tensor(np.ones((3, 3), np.float32))


def product(x):
    return mint.matmul(x, x) + 1


try:
    how = {"backend": "GE"} if sys.argv[1] == "GE" else {"jit_level": "O1"}
    print(ms.jit(product, **how)(x))
except Exception as error:
    print("REFUSED", str(error).split("\n")[0])
