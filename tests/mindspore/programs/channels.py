"""channels.py NAME...: what compiled graphs send to the program and read from it through channels; a line of JSON per case."""

import json
import sys
import tempfile
import time
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, dataset, nn, ops
from mindspore.train.summary_pb2 import Event

ROWS = np.random.RandomState(0).randn(12, 5).astype(np.float32)
DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64")


class Dumps(nn.Cell):
    def __init__(self, folder):
        super().__init__()
        self.dump = ops.TensorDump()
        self.before, self.after = f"{folder}/before", f"{folder}/after"

    def construct(self, x):
        self.dump(self.before, x)
        y = x + x
        self.dump(self.after, y)
        return y


def written(folder, name):
    """The file, once it is whole: MindSpore takes the right to write away from it then."""
    for _ in range(200):
        for path in folder.glob(f"{name}_*.npy"):
            if path.stat().st_mode & 0o777 == 0o400:
                return np.load(path)
        time.sleep(0.1)
    raise AssertionError(f"no {name}: {[each.name for each in folder.iterdir()]}")


def dump(dtype):
    x = Tensor(ROWS * 3).astype(getattr(ms, dtype))
    with tempfile.TemporaryDirectory() as folder:
        y = Dumps(folder)(x)
        found = [written(Path(folder), name) for name in ("before", "after")]
    expected = [each.float().asnumpy() if dtype == "bfloat16" else each.asnumpy() for each in (x, y)]
    same = all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    return [same, not np.array_equal(found[0], expected[1])]


class Prints(nn.Cell):
    def construct(self, x):
        print("first", x, "second", x + x)
        return x


def printed():
    """To stdout, where the test looks for it."""
    Prints()(Tensor(ROWS[:1, :2] * 0 + 7))
    time.sleep(1)
    return


class Summaries(nn.Cell):
    def __init__(self):
        super().__init__()
        self.scalar, self.tensor = ops.ScalarSummary(), ops.TensorSummary()

    def construct(self, x):
        self.scalar("sum", x.sum())
        self.tensor("rows", x)
        return x


def summaries():
    net = Summaries()
    with tempfile.TemporaryDirectory() as folder:
        with ms.SummaryRecord(folder, network=net) as record:
            net(Tensor(ROWS))
            time.sleep(2)
            record.record(1)
        (path,) = Path(folder).glob("*_MS")
        data, found = path.read_bytes(), {}
    while data:  # records of TFRecord: a length, its checksum, the event, its checksum
        size = int.from_bytes(data[:8], "little")
        for value in Event.FromString(data[12 : 12 + size]).summary.value:
            found[value.tag] = value
        data = data[16 + size :]
    rows = np.array(found["rows"].tensor.float_data, np.float32).reshape(found["rows"].tensor.dims)
    return [found["sum"].scalar_value - float(ROWS.sum()), float(np.abs(rows - ROWS).max())]


class Losses(ms.Callback):
    def __init__(self):
        super().__init__()
        self.found = []

    def step_end(self, run_context):
        self.found.append(float(run_context.original_args().net_outputs.asnumpy()))


def trained(sink, mode, epochs=3, batches=4, size=-1, rows=ROWS):
    ms.set_context(mode=mode, jit_config={"jit_level": "O0"})
    ms.set_seed(0)
    net = nn.SequentialCell(nn.Dense(3, 4), nn.ReLU(), nn.Dense(4, 2))
    data = dataset.NumpySlicesDataset((rows[:, :3], rows[:, 3:]), ["x", "y"], shuffle=False).batch(3)
    model = ms.Model(net, nn.MSELoss(), nn.Adam(net.trainable_params(), 0.05), metrics={"loss"})
    losses = Losses()
    model.train(epochs, data.take(batches), callbacks=[losses], dataset_sink_mode=sink, sink_size=size)
    return losses.found, [*(each.asnumpy() for each in net.trainable_params())], model


def sunk(mode, every, **how):
    """Whether losses, of which the program sees each `every`th, and weights are those without sinking; whether they are
    others with other data."""
    plain, weights, _ = trained(False, mode, **{key: how[key] for key in how if key != "size"})
    how = {"epochs": 3, "size": 1} if "size" in how else how
    losses, others, _ = trained(True, mode, **how)
    *_, moved = trained(True, mode, rows=ROWS * 1.0001, **how)[:2]
    same = all(np.array_equal(a, b) for a, b in zip(weights, others, strict=True))
    return [losses == plain[every - 1 :: every], same, any((a != b).any() for a, b in zip(moved, weights, strict=True))]


def left():
    """A run that ends while more data wait than a channel holds."""
    trained(True, ms.GRAPH_MODE, epochs=2, batches=400, size=1, rows=np.tile(ROWS, (100, 1)))
    return


def evaluated():
    *_, model = trained(False, ms.GRAPH_MODE)
    data = dataset.NumpySlicesDataset((ROWS[:, :3], ROWS[:, 3:]), ["x", "y"], shuffle=False).batch(3)
    return [model.eval(data, dataset_sink_mode=sink)["loss"] for sink in (False, True)]


class Broken:
    def __len__(self):
        return 12

    def __getitem__(self, row):
        if row == 7:
            raise ValueError("a broken row")
        return ROWS[row, :3], ROWS[row, 3:]


def broken():
    """Data that end in an error of the program: whoever reads them waits as long as an operator may take."""
    ms.device_context.ascend.op_debug.execute_timeout(2)
    net = nn.Dense(3, 2)
    model = ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params()))
    model.train(1, dataset.GeneratorDataset(Broken(), ["x", "y"], shuffle=False).batch(2), dataset_sink_mode=True)


CASES = {
    **{f"dump {dtype}": (lambda dtype=dtype: dump(dtype)) for dtype in DTYPES},
    "print": printed,
    "summaries": summaries,
    "sink, compiled": lambda: sunk(ms.GRAPH_MODE, 4),
    "sink, step by step": lambda: sunk(ms.GRAPH_MODE, 1, epochs=1, batches=3, size=1),
    "sink, op by op": lambda: sunk(ms.PYNATIVE_MODE, 1),
    "sink, evaluated": evaluated,
    "sink, not to the end": left,
}

LAST = {"broken data": broken}  # it leaves the device with an error

if __name__ == "__main__":
    ms.set_device("Ascend")
    ms.set_context(mode=ms.GRAPH_MODE, jit_config={"jit_level": "O0"})
    for name in sys.argv[1:] or CASES:
        try:
            print(json.dumps({"case": name, "said": (CASES | LAST)[name]()}), flush=True)
        except Exception as error:
            print(json.dumps({"case": name, "error": str(error)[:1000]}), flush=True)
