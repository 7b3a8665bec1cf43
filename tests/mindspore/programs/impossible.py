"""impossible.py [WHAT ...]: what cannot be on the virtual NPU, each in a process of its own, as some leave the device with
an error: a line of JSON with how the process has ended (negative: by a signal) and with all that it has said."""

import ctypes
import json
import os
import sys
import tempfile
import traceback

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops

x = Tensor(np.ones((3, 3), np.float32))
HALF = Tensor(np.ones((1, 1, 16), np.float16))
CACHE = Tensor(np.zeros((1, 16, 1, 16), np.float16))


def product(x):
    return mint.matmul(x, x) + 1


def compiled(**how):
    return ms.jit(product, **how)(x)


def graph(level):
    ms.set_context(mode=ms.GRAPH_MODE, jit_config={"jit_level": level})
    return nn.Dense(3, 2)(x)


def write_cache():
    """An operator of ATB and of MindSpore's internal kernels."""
    return ops.auto_generate.reshape_and_cache(HALF, HALF, CACHE, CACHE, Tensor([0], ms.int32))


def boosted():
    """The same, asked for with the switch for inference."""
    ms.set_context(mode=ms.PYNATIVE_MODE, jit_config={"jit_level": "O0", "infer_boost": "on"})
    blocks, lengths = Tensor([[0]], ms.int32), Tensor([3], ms.int32)
    attention = ops.auto_generate.PagedAttention(1, 1.0, 1)
    found = attention(HALF, CACHE, CACHE, blocks, lengths, None, None, None, None, None)
    ms.runtime.synchronize()
    return found


def symmetric_memory():
    return ops.auto_generate.create_symmetric_memory((3, 3), ms.float32, "hccl_world_group")


def resize_on_device(pipeline):
    from mindspore import dataset
    from mindspore.dataset import vision

    resize, image = vision.Resize([16, 16]).device("Ascend"), np.zeros((32, 32, 3), np.uint8)
    if not pipeline:
        return resize(image)
    images = dataset.NumpySlicesDataset([image], ["image"]).map([resize], ["image"])
    return list(images.create_tuple_iterator(output_numpy=True))


def offline_model():
    """What infers with an .om asks of CANN, which MindSpore has loaded."""
    cann = ctypes.CDLL("libascendcl.so")
    cann.aclGetRecentErrMsg.restype = ctypes.c_char_p
    if code := cann.aclmdlLoadFromFile(b"model.om", ctypes.byref(ctypes.c_uint32())):
        raise RuntimeError(f"{code}: {cann.aclGetRecentErrMsg().decode()}")


WHAT = {
    "GE": lambda: compiled(backend="GE"),
    "O1": lambda: compiled(jit_level="O1"),
    "graph O1": lambda: graph("O1"),
    "graph O2": lambda: graph("O2"),
    "cache": write_cache,
    "boosted": boosted,
    "symmetric memory": symmetric_memory,
    "dvpp": lambda: resize_on_device(False),
    "dvpp pipeline": lambda: resize_on_device(True),
    "om": offline_model,
}

for what in sys.argv[1:] or WHAT:
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            ms.set_device("Ascend")
            try:
                print("DONE", WHAT[what]())
            except Exception:
                print("REFUSED", traceback.format_exc())
            sys.exit(0)  # as a program does: what MindSpore does at the exit is seen, too
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        print(json.dumps({"case": what, "status": status, "said": said.read()}), flush=True)
