"""index/index.cpp: reading and writing at indices and under masks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import pytest
import torch
from aclnn import INVALID_ARGUMENT, first_phase, refused, run
from oracle import DEVICE, check, compare, layouts, random

ROWS = torch.tensor([2, 0, 2])
X = random(4, 5)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x[1],
        lambda x: x[1:3],
        lambda x: x[::2, 1:],
        lambda x: x[..., -1],
        lambda x: x[None, 2:],
        lambda x: x[ROWS.to(x.device)],
        lambda x: x[:, ROWS.to(x.device)],
        lambda x: x[ROWS.to(x.device), ROWS.to(x.device)],
        lambda x: x[ROWS.to(x.device)[:, None], ROWS.to(x.device)],
        lambda x: x[ROWS.to(x.device), 1:3],
        lambda x: x[torch.tensor([-1, 1], device=x.device)],
        lambda x: x[torch.tensor([], dtype=torch.long, device=x.device)],
        lambda x: x[x > 0],
        lambda x: x[x[:, 0] > -9],
        lambda x: x[torch.tensor([True, False, True, False], device=x.device)],
        lambda x: x[:, torch.tensor([True, False, True, False, True], device=x.device)],
        lambda x: x[ROWS.to(x.device).int()],
        lambda x: x.index_select(0, ROWS.to(x.device)),
        lambda x: x.index_select(1, ROWS.to(x.device).int()),
        lambda x: x.gather(1, torch.tensor([[0, 4], [1, 1]], device=x.device)),
        lambda x: x.gather(0, torch.tensor([[0, 3], [1, 1]], device=x.device)),
        lambda x: x.take(torch.tensor([[0, 19], [7, -1]], device=x.device)),
        lambda x: x.masked_select(x > 0),
        lambda x: x.masked_select(torch.tensor([True, False, True, False, True], device=x.device)),
    ],
)
def test_reading(read: Callable[..., Any]) -> None:
    check(read, X, ulps=4)
    for view in layouts(X):
        check(read, view, dtypes=[torch.float32], grad=False)
    check(read, (X * 9).long(), grad=False)
    check(read, X > 0.5, grad=False) if "> " not in str(read) else None


def store(x: torch.Tensor, where: Any, value: Any) -> torch.Tensor:
    x = x.clone()
    x[where] = value
    return x


@pytest.mark.parametrize(
    "write",
    [
        lambda x, y: store(x, 1, y[0]),
        lambda x, y: store(x, slice(1, 3), y[:2]),
        lambda x, y: store(x, (slice(None), 2), 7),
        lambda x, y: store(x, torch.tensor([2, 0], device=x.device), y[:2]),
        lambda x, y: store(x, torch.tensor([2, 0], device=x.device), 3),
        lambda x, y: store(x, (slice(None), torch.tensor([2, 0], device=x.device)), y[:, :2]),
        lambda x, y: store(x, (torch.tensor([2, 0], device=x.device), torch.tensor([1, 1], device=x.device)), y[0, :2]),
        lambda x, y: store(x, torch.tensor([], dtype=torch.long, device=x.device), 5),
        lambda x, y: store(x, x > 0, 0.5),
        lambda x, y: store(x, torch.tensor([True, False, True, False], device=x.device), y[:2]),
        lambda x, y: x.index_put((torch.tensor([2, 2, 0], device=x.device),), y[:3], accumulate=True),
        lambda x, y: x.index_put(
            (torch.tensor([2, 2], device=x.device), torch.tensor([1, 1], device=x.device)), y[0, :2], accumulate=True
        ),
        lambda x, y: x.index_add(0, torch.tensor([2, 2, 0], device=x.device), y[:3], alpha=0.5),
        lambda x, y: x.index_add(1, torch.tensor([2, 2], device=x.device), y[:, :2]),
        lambda x, y: x.index_copy(0, torch.tensor([2, 0], device=x.device), y[:2]),
        lambda x, y: x.index_fill(1, torch.tensor([2, 0], device=x.device), 3),
        lambda x, y: x.scatter(1, torch.tensor([[0, 4], [1, 2]], device=x.device), y[:2, :2]),
        lambda x, y: x.scatter(1, torch.tensor([[0, 4], [1, 2]], device=x.device), 1.5),
        lambda x, y: x.scatter_add(0, torch.tensor([[0, 3], [0, 3], [0, 1]], device=x.device), y[:3, :2]),
        lambda x, y: x.masked_fill(x > 0, -1.0),
        lambda x, y: x.masked_fill(torch.tensor([True, False, True, False, True], device=x.device), 2),
        lambda x, y: x.masked_scatter(x > 0, y),
    ],
)
def test_writing(write: Callable[..., Any]) -> None:
    y = random(4, 5, seed=1)
    check(write, X, y, ulps=4)
    for view in layouts(X):
        check(write, view, y.t().contiguous().t(), dtypes=[torch.float32], grad=False)


@pytest.mark.parametrize(
    "write",
    [
        lambda x, y: x.scatter(1, torch.tensor([[0, 4], [1, 2]], device=x.device), y, reduce="add"),
        lambda x, y: x.scatter(1, torch.tensor([[0, 4], [1, 2]], device=x.device), y, reduce="multiply"),
        lambda x, y: x.scatter(1, torch.tensor([[0, 4], [1, 2]], device=x.device), 3, reduce="add"),
        lambda x, y: x.scatter_(1, torch.tensor([[0, 4], [1, 2]], device=x.device), y),
        lambda x, y: x.scatter_(1, torch.tensor([[0, 4], [1, 2]], device=x.device), 2.0),
        lambda x, y: x.scatter_(1, torch.tensor([[0, 4], [1, 2]], device=x.device), 2.0, reduce="multiply"),
        lambda x, y: x.scatter_add_(1, torch.tensor([[0, 4], [1, 1]], device=x.device), y),
        lambda x, y: x.index_copy_(0, torch.tensor([2, 0], device=x.device), y[:2]),
        lambda x, y: x.index_fill_(0, torch.tensor([2, 0], device=x.device), 3),
        lambda x, y: x.index_fill_(
            0, torch.tensor([2], device=x.device), torch.tensor(4.0, dtype=x.dtype, device=x.device)
        ),
        lambda x, y: x.index_add_(0, torch.tensor([2, 2], device=x.device), y[:2]),
        lambda x, y: x.masked_fill_(x > 0, 2.0),
        lambda x, y: x.masked_fill_(x > 0, torch.tensor(2.0, dtype=x.dtype, device=x.device)),
        lambda x, y: x.masked_scatter_(x > 0, y),
        lambda x, y: x.put_(torch.tensor([0, 7], device=x.device), y[0, :2]),
        lambda x, y: x.put_(torch.tensor([7, 7], device=x.device), y[0, :2], accumulate=True),
        lambda x, y: x.scatter_reduce(1, torch.tensor([[0, 4, 0], [1, 2, 1]], device=x.device), y, "sum"),
    ],
)
def test_in_place_and_reduced(write: Callable[..., Any]) -> None:
    for view in layouts(X):
        if 0 not in view.stride():
            check(write, view, random(4, 5, seed=1), grad=False, ulps=4)


SCATTER_REDUCE = """
import sys
sys.path.insert(0, {folder!r})
import torch
from aclnn import run
from oracle import DEVICE, compare, random
x, y = random(4, 5).float(), random(4, 5, seed=1).float()
index = torch.tensor([[0, 4, 0], [1, 2, 1]])
there = [t.to(DEVICE) for t in (x, index, y)]
for code, name in enumerate(("sum", "prod", "amax", "amin", "mean"), 1):
    for include_self in (True, False):
        expected = x.double().scatter_reduce(1, index, y.double(), name, include_self=include_self)
        out = torch.empty(4, 5, device=DEVICE)
        run("aclnnScatterReduce", there[0], 1, *there[1:], code, include_self, out)
        compare(out, expected, torch.float32)
        out.copy_(x)
        run("aclnnInplaceScatterReduce", out, 1, *there[1:], code, include_self)
        compare(out, expected, torch.float32)
print("done")
"""


def test_scatter_reduce() -> None:
    """Of these a 910B takes the sum with what is there, which torch_npu knows (test_argument_limits.py)."""
    program = SCATTER_REDUCE.format(folder=str(Path(__file__).parents[1]))
    ended = forked.python(program, VNPU_CHECKS="any")
    assert ended.stdout == "done\n", ended.stderr


@pytest.mark.parametrize(("code", "name"), [(1, "add"), (2, "multiply")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_scatter_with_a_reduction_by_c_name(code: int, name: str, dtype: torch.dtype) -> None:
    """torch_npu 2.13 sends these to the CPU."""
    x, y = random(4, 5).to(dtype), random(4, 5, seed=1).to(dtype)
    index = torch.tensor([[0, 4, 0], [1, 2, 1]])
    expected = x.double().scatter(1, index, y.double(), reduce=name)
    out = torch.empty(4, 5, dtype=dtype, device=DEVICE)
    run("aclnnScatter", x.to(DEVICE), 1, index.to(DEVICE), y.to(DEVICE), code, out)
    compare(out, expected, dtype)
    run("aclnnInplaceScatter", out.copy_(x), 1, index.to(DEVICE), y.to(DEVICE), code)
    compare(out, expected, dtype)
    expected = x.double().scatter(1, index, 3.0, reduce=name)
    run("aclnnScatterValue", x.to(DEVICE), 1, index.to(DEVICE), 3.0, code, out)
    compare(out, expected, dtype)
    run("aclnnInplaceScatterValue", out.copy_(x), 1, index.to(DEVICE), 3.0, code)
    compare(out, expected, dtype)


SCATTER_SUMS = """
import sys
sys.path.insert(0, {folder!r})
import torch
from torchport import vnpu
vnpu.activate(force=True)
from aclnn import run
x, index = torch.ones(3, device="npu"), torch.tensor([0, 0, 2], device="npu")
out = torch.empty(3, device="npu")
run("aclnnScatter", x, 0, index, 2 * x, 1, out)
print(out.tolist())
"""


def test_scatter_that_sums_uses_nothing_deprecated() -> None:
    """ATen says so once in a process, on a thread that no filter of Python's reaches."""
    ended = forked.python(SCATTER_SUMS.format(folder=str(Path(__file__).parents[1])))
    assert ended.stdout == "[5.0, 1.0, 3.0]\n", ended.stderr
    assert "deprecated" not in ended.stderr


def test_a_thousand_values_at_one_place() -> None:
    """Accumulated in float32: in float16 the sum of 0.1 would stop growing at 256."""
    where = torch.zeros(4000, dtype=torch.long)
    values = torch.full((4000,), 0.1, dtype=torch.float64)
    zeros = torch.zeros(2, dtype=torch.float64)
    half = {"dtypes": [torch.float16, torch.bfloat16], "grad": False}
    check(lambda z, v: z.index_put((where.to(z.device),), v, accumulate=True), zeros, values, **half)
    check(lambda z, v: z.scatter_add(0, where.to(z.device), v), zeros, values, **half)
    check(lambda z, v: z.index_add(0, where.to(z.device), v), zeros, values, **half)


def test_infinite_fill_in_half_precision() -> None:
    """Masking scores with -1e9 gives -inf in float16, as the hardware's cast does; torch's CPU refuses it."""
    x = torch.zeros(2, 2, dtype=torch.float16, device=DEVICE)
    assert x.masked_fill(torch.eye(2, dtype=torch.bool, device=DEVICE), -1e9).tolist() == [
        [-float("inf"), 0],
        [0, -float("inf")],
    ]


def test_rows_and_places() -> None:
    data, updates = random(3, 4, 5).float(), random(3, 2, 5, seed=4).float()
    at = torch.tensor([2, 0, 1], device=DEVICE)
    result = data.to(DEVICE)
    run("aclnnInplaceScatterUpdate", result, at, updates.to(DEVICE), -2)
    expected = data.clone()
    for row, start in enumerate(at.tolist()):
        expected[row, start : start + 2] = updates[row]
    assert torch.equal(result.cpu(), expected)
    variable = torch.zeros(4, 3, device=DEVICE)
    run("aclnnScatterNdUpdate", variable, torch.tensor([[1], [3]], device=DEVICE), torch.ones(2, 3, device=DEVICE))
    assert variable[:, 0].tolist() == [0, 1, 0, 1]


def test_by_c_name() -> None:
    x = random(4, 5).float()
    out = torch.empty(4, 5, device=DEVICE)
    run("aclnnIndexFillTensor", x.to(DEVICE), 1, [0, 3], 2.0, out)
    compare(out, x.double().index_fill(1, torch.tensor([0, 3]), 2.0), torch.float32)
    run("aclnnInplaceIndexFillTensor", out, 0, [1], -1.0)
    assert out[1].tolist() == [-1.0] * 5
    index, source = torch.tensor([1, 1], device=DEVICE), random(2, 5, seed=3).float()
    run("aclnnIndexAddV2", x.to(DEVICE), 0, index, source.to(DEVICE), 2.0, 0, out)
    compare(out, x.double().index_add(0, index.cpu(), source.double(), alpha=2), torch.float32)
    run("aclnnIndexCopy", x.to(DEVICE), 0, torch.tensor([3, 0], device=DEVICE), source.to(DEVICE), out)
    compare(out, x.double().index_copy(0, torch.tensor([3, 0]), source.double()), torch.float32)
    run("aclnnIndexFill", x.to(DEVICE), 1, torch.tensor([3, 0], device=DEVICE), 0.5, out)
    compare(out, x.double().index_fill(1, torch.tensor([3, 0]), 0.5), torch.float32)


@pytest.mark.parametrize("none", [(0,), (0,) * 9])
def test_an_empty_index_among_others_is_none(none: tuple[int, ...]) -> None:
    """With one dimension as torch_npu writes it, with nine as MindSpore does, which aclnnIndex does not take."""
    x, index = random(3, 4, 5).float(), torch.tensor([2, 0, 2])
    nothing = torch.empty(none, dtype=torch.int64, device=DEVICE)
    out, values = torch.empty(3, 4, 3, device=DEVICE), random(3, 4, 3, seed=1).float()
    if len(none) == 1:
        run("aclnnIndex", x.to(DEVICE), [nothing, nothing, index.to(DEVICE)], out)
        compare(out, x.double()[:, :, index], torch.float32)
    target = x.to(DEVICE)
    run("aclnnIndexPutImpl", target, [nothing, nothing, index.to(DEVICE)], values.to(DEVICE), True, False)
    exact = x.double().index_put(
        (torch.arange(3)[:, None, None], torch.arange(4)[None, :, None], index), values.double(), True
    )
    compare(target, exact, torch.float32)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_gather_counts_from_the_end(dtype: torch.dtype) -> None:
    """As CANN does and torch does not: -size to size - 1."""
    x, index = random(4, 5).float(), torch.tensor([[-5, 4, -1], [0, -2, 2]])
    out = torch.empty(2, 3, device=DEVICE)
    run("aclnnGather", x.to(DEVICE), 1, index.to(DEVICE, dtype), out)
    compare(out, x.double().gather(1, index % 5), torch.float32)


PAST_THE_END = """
import torch
x = torch.ones({sizes}, device="npu")
y = {read}
torch.npu.synchronize()
"""


# The operator, the sizes of what is read, how, and what its error says.
PAST = [
    ("aclnnIndex", (3,), "x[torch.tensor([5], device='npu')]", "index 5 is out of bounds"),
    ("aclnnGather", (3,), "x.gather(0, torch.tensor([-4], device='npu'))", "index -4 is out of bounds"),
    # of a tensor without dimensions, which is as one of one element
    ("aclnnGather", (), "x.gather(0, torch.tensor(-2, device='npu'))", "index -2 is out of bounds for dimension 0"),
    ("aclnnIndexSelect", (), "x.index_select(0, torch.tensor([1], device='npu'))", "index out of range in self"),
    ("aclnnGather", (), "x.gather(0, torch.tensor(1, device='npu'))", "index 1 is out of bounds for dimension 0"),
]


@pytest.mark.parametrize(("name", "sizes", "read", "words"), PAST)
def test_an_index_past_the_end_names_the_operator(name: str, sizes: tuple[int, ...], read: str, words: str) -> None:
    """In a process of its own: after a kernel's failure torch_npu refuses all further work, as on hardware."""
    child = forked.python(PAST_THE_END.format(sizes=sizes, read=read))
    assert child.returncode != 0
    assert f"{name} failed" in child.stderr
    assert words in child.stderr


def test_refused() -> None:
    x = torch.ones(2, 3, device=DEVICE)
    index = torch.zeros(2, 2, dtype=torch.int64, device=DEVICE)
    assert "out has shape [2, 3], expected [2, 2]" in refused("aclnnGather", x, 1, index, x)
    assert "index has dtype float32" in refused("aclnnGather", x, 1, x, x)
    assert "larger than self" in refused("aclnnGather", x, 1, torch.zeros(4, 1, dtype=torch.int64, device=DEVICE), x)
    assert "reduce is 3, allowed is [0, 2]" in refused("aclnnScatter", x, 1, index, x, 3, x)
    assert "larger than src" in refused("aclnnScatter", x, 1, index, x[:, :1], 0, x)
    assert "dim is 2" in refused("aclnnIndexSelect", x, 2, index[0], x)
    assert "has 3 subscripts" in refused("aclnnIndex", x, [index, index, index], torch.empty(2, 2, device=DEVICE))
    assert "mask has dtype float32" in refused("aclnnInplaceMaskedFillScalar", x, x, 1.0)
    assert "up to 6 are needed" in refused("aclnnMaskedSelect", x, x > 0, torch.empty(2, device=DEVICE))
    assert "source has 3 elements, expected 4" in refused("aclnnInplacePut", x, index, x[0], False)
    number, none = torch.ones((), device=DEVICE), index[0, :0]
    one = "When source is scalar, index should have one element"
    assert one in refused("aclnnIndexAdd", number, 0, none, number, 1, number)
    assert one in refused("aclnnInplaceIndexCopy", number, 0, none, number)
    assert one in refused("aclnnInplaceIndexCopy", x[0], 0, index[0], number)
    assert "index has the value 3, which is out of range" in refused("aclnnInplaceIndexFillTensor", x, 1, [0, 3], 2.0)


def test_slices_of_numbers_and_of_nothing() -> None:
    """(ops-nn: aclnn_index_add.cpp, aclnn_index_copy.cpp, aclnn_index_fill.cpp, aclnn_index_fill_tensor.cpp)"""
    number, first = torch.tensor(2.0, device=DEVICE), torch.zeros(1, dtype=torch.int64, device=DEVICE)
    out = torch.zeros((), device=DEVICE)
    for source in (number, number.reshape(1)):
        run("aclnnIndexAdd", number, 0, first, source, 1, out)
        assert out.item() == 4
        run("aclnnInplaceIndexCopy", out, 0, first, source)
        assert out.item() == 2
    line = torch.zeros(3, device=DEVICE)
    run("aclnnIndexAdd", line, 0, first + 1, number, 2, line)
    run("aclnnInplaceIndexCopy", line, 0, first, number)
    assert line.tolist() == [2, 4, 0]
    run("aclnnIndexAdd", number, 0, first[:0], line[:0], 1, out)
    assert out.item() == 2
    empty = torch.zeros(0, 2, device=DEVICE)
    run("aclnnInplaceIndexFill", empty, 0, first, 3.0)  # where there is nothing, no place is wrong
    run("aclnnInplaceIndexFillTensor", empty, 0, [5], 3.0)
    run("aclnnInplaceIndexCopy", line[:0], 0, first, number)
    run("aclnnIndexAdd", line[:0], 0, first, number, 1, line[:0])


def test_a_number_and_an_empty_index() -> None:
    """CANN starts no kernel, which would find that a number has no such rows (ops-nn: aclnn_index_select.cpp)."""
    number = torch.tensor(1.0).npu()
    number.index_select(0, torch.empty(0, dtype=torch.int64).npu())
    torch.npu.synchronize()
    status, message = first_phase("aclnnIndexSelect", number, 0, torch.tensor([0, 0]).npu(), number.clone())
    assert status == INVALID_ARGUMENT and "at most one index into a number" in message
