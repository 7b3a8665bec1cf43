"""A product for each group of rows, and products with something before or behind them."""

from typing import Any

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import compare, random

ENDS = [2, 2, 7]


def by_group(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    rows, begin = [], 0
    for g, end in enumerate(ENDS):
        part = x[begin:end].double() @ weight[g].double()
        rows.append(part if bias is None else part + bias[g].double())
        begin = end
    return torch.cat(rows)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("sizes", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_groups_of_rows(dtype: torch.dtype, sizes: bool, listed: bool) -> None:
    x, weight = random(7, 8).to(dtype), random(3, 8, 6, seed=1).to(dtype)
    bias = random(3, 6, seed=2).to(torch.float16 if dtype == torch.float16 else torch.float32)
    groups = torch.tensor([2, 0, 5] if sizes else ENDS)
    weights = [w.contiguous().npu() for w in weight] if listed else [weight.npu()]
    biases = [b.contiguous().npu() for b in bias] if listed else [bias.npu()]
    (out,) = torch_npu.npu_grouped_matmul(
        [x.npu()], weights, bias=biases, group_list=groups.npu(), split_item=3, group_type=0, group_list_type=int(sizes)
    )
    compare(out, by_group(x, weight, bias), dtype)


def test_no_groups() -> None:
    x = [random(n, 8, seed=n).half() for n in (2, 5)]
    weight = [random(8, n, seed=n).half() for n in (3, 4)]
    out = torch_npu.npu_grouped_matmul(
        [t.npu() for t in x], [t.npu() for t in weight], group_list=None, split_item=0, group_type=-1
    )
    for actual, a, b in zip(out, x, weight, strict=True):
        compare(actual, a.double() @ b.double(), torch.float16)


def test_one_product_of_two_matrices() -> None:
    x, weight = random(5, 8).half(), random(8, 3, seed=1).half()
    (out,) = torch_npu.npu_grouped_matmul([x.npu()], [weight.npu()], group_list=None, split_item=0, group_type=-1)
    compare(out, x.double() @ weight.double(), torch.float16)


@pytest.mark.parametrize("listed", [False, True])
def test_tensors_of_rows_in_one_result(listed: bool) -> None:
    rows, inner = (3, 1, 2), (8, 5, 6)
    x = [random(n, k, seed=n).half() for n, k in zip(rows, inner, strict=True)]
    weight = [random(k, 4, seed=k).half() for k in inner]
    bias = [random(4, seed=9 + k).half() for k in inner]
    (out,) = torch_npu.npu_grouped_matmul(
        [t.npu() for t in x],
        [t.npu() for t in weight],
        bias=[t.npu() for t in bias],
        group_list=[3, 4, 6] if listed else None,
        split_item=2,
        group_type=0,
    )
    parts = (a.double() @ b.double() + c.double() for a, b, c in zip(x, weight, bias, strict=True))
    compare(out, torch.cat([*parts]), torch.float16)
    with pytest.raises(RuntimeError, match="expected as many of each"):
        torch_npu.npu_grouped_matmul([t.npu() for t in x], [t.npu() for t in weight[:2]], split_item=2, group_type=0)
    if listed:
        with pytest.raises(RuntimeError, match=r"x\[1\] ends at row 4"):
            torch_npu.npu_grouped_matmul(
                [t.npu() for t in x], [t.npu() for t in weight], group_list=[3, 5, 6], split_item=2, group_type=0
            )


def test_groups_of_the_inner_dimension() -> None:
    x, weight = random(5, 7).half(), random(7, 6, seed=1).half()
    (out,) = torch_npu.npu_grouped_matmul(
        [x.t().contiguous().t().npu()],
        [weight.npu()],
        group_list=torch.tensor(ENDS).npu(),
        split_item=3,
        group_type=2,
        group_list_type=0,
    )
    begin = 0
    for g, end in enumerate(ENDS):
        compare(out[g], x[:, begin:end].double() @ weight[begin:end].double(), torch.float16)
        begin = end


@pytest.mark.parametrize(
    "name",
    [
        "aclnnGroupedMatmul",
        "aclnnGroupedMatmulV2",
        "aclnnGroupedMatmulV3",
        "aclnnGroupedMatmulV4",
        "aclnnGroupedMatmulV5",
    ],
)
def test_every_version(name: str) -> None:
    x, weight = random(7, 8).half(), random(3, 8, 6, seed=1).half()
    out = [torch.empty(7, 6, dtype=torch.float16, device="npu")]
    nothing = (None,) * 5
    if name == "aclnnGroupedMatmul":
        run(name, [x.npu()], [w.contiguous().npu() for w in weight], *nothing, ENDS, 3, out)
    elif name in ("aclnnGroupedMatmulV2", "aclnnGroupedMatmulV3"):  # groups in host memory, then on the device
        ends = ENDS if name.endswith("V2") else torch.tensor(ENDS).npu()
        run(name, [x.npu()], [weight.npu()], *nothing, ends, 3, 0, out)
    else:
        last = (None,) if name.endswith("V5") else ()
        run(
            name,
            [x.npu()],
            [weight.npu()],
            *nothing,
            None,
            torch.tensor(ENDS).npu(),
            None,
            None,
            None,
            3,
            0,
            0,
            0,
            *last,
            out,
            None,
            None,
        )
    compare(out[0], by_group(x, weight, None), torch.float16)


def test_int8_groups() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-128, 128, (7, 8), generator=generator).to(torch.int8)
    weight = torch.randint(-128, 128, (3, 8, 6), generator=generator).to(torch.int8)
    scale, row = random(3, 6, low=0.001, high=0.01).float(), random(7, low=0.5, seed=2).float()
    expected = by_group(x, weight * 1.0 * scale.double().unsqueeze(1), None) * row.double().unsqueeze(1)
    out = torch.empty(7, 6, dtype=torch.float16, device="npu")
    run(
        "aclnnGroupedMatmulV4",
        [x.npu()],
        [weight.npu()],
        None,
        [scale.npu()],
        None,
        None,
        None,
        [row.npu()],
        torch.tensor(ENDS).npu(),
        None,
        None,
        None,
        3,
        0,
        0,
        0,
        [out],
        None,
        None,
    )
    compare(out, expected, torch.float16)


@pytest.mark.parametrize("sizes", [False, True])
def test_sum_of_products(sizes: bool) -> None:
    x, weight, y = random(7, 4).half(), random(7, 6, seed=1).half(), random(3, 4, 6, seed=2).float()
    expected = y.double()
    begin = 0
    for g, end in enumerate(ENDS):
        expected[g] += x[begin:end].double().t() @ weight[begin:end].double()
        begin = end
    device, groups = y.npu(), torch.tensor([2, 0, 5] if sizes else ENDS).npu()
    name = "aclnnGroupedMatmulAddV2" if sizes else "aclnnGroupedMatmulAdd"
    run(name, x.npu(), weight.npu(), groups, device, True, False, 2, *((1,) if sizes else ()))
    compare(device, expected, torch.float32, ulps=8)


@pytest.mark.parametrize("split", [1, 2])
@pytest.mark.parametrize("swapped", [False, True])
def test_transposed_product(split: int, swapped: bool) -> None:
    x1, x2 = random(4, 3, 8).half(), random(4, 8, 5, seed=1).half()
    first = x1.transpose(0, 1).contiguous() if swapped else x1
    out = torch.empty(*((3, 4, 5) if split == 1 else (split, 3, 10)), dtype=torch.float16, device="npu")
    run(
        "aclnnTransposeBatchMatMul",
        first.npu(),
        x2.npu(),
        None,
        None,
        [1, 0, 2] if swapped else [0, 1, 2],
        [0, 1, 2],
        [1, 0, 2],
        0,
        split,
        out,
    )
    expected = (x1.double() @ x2.double()).transpose(0, 1)
    if split > 1:
        expected = expected.reshape(3, split, 10).transpose(0, 1)
    compare(out, expected, torch.float16)


@pytest.mark.parametrize("kind", ["add", "mul", "gelu_tanh", "gelu_erf", "relu", "16cast32"])
def test_fused_product(kind: str) -> None:
    x1, x2, bias, x3 = (
        random(3, 8).half(),
        random(8, 5, seed=1).half(),
        random(5, seed=2).half(),
        random(3, 5, seed=3).half(),
    )
    plain = x1.double() @ x2.double()
    biased = plain + bias.double()
    expected = {
        "add": biased + x3.double(),
        "mul": biased * x3.double(),
        "gelu_tanh": torch.nn.functional.gelu(plain, approximate="tanh"),
        "gelu_erf": torch.nn.functional.gelu(plain),
        "relu": biased.relu(),
        "16cast32": biased,
    }[kind]
    dtype = torch.float32 if kind == "16cast32" else torch.float16
    out = torch.empty(3, 5, dtype=dtype, device="npu")
    with_bias = None if kind.startswith("gelu") else bias.npu()
    run("aclnnFusedMatmul", x1.npu(), x2.npu(), with_bias, x3.npu() if kind in ("add", "mul") else None, kind, 0, out)
    compare(out, expected, dtype, ulps=4)


def test_refusals() -> None:
    x, weight, out = (torch.ones(*s, device="npu").half() for s in ((7, 8), (3, 8, 6), (7, 6)))
    groups = torch.tensor(ENDS).npu()
    none = (None,) * 6

    def version4(given: torch.Tensor | None, kind: int, activation: int) -> tuple[Any, ...]:
        return ([x], [weight], *none, given, None, None, None, 3, kind, 0, activation, [out], None, None)

    cases: list[tuple[str, tuple[Any, ...], str]] = [
        ("aclnnGroupedMatmulV4", version4(groups, 0, 2), "parameter actType is 2"),
        ("aclnnGroupedMatmulV4", version4(None, 0, 0), "a group list in groupType 0"),
        ("aclnnGroupedMatmulV4", version4(groups[:2], 0, 0), "shape [2], expected [3]"),
        ("aclnnFusedMatmul", (x, weight[0], None, None, "tanh", 0, out), 'fusedOpType is "tanh"'),
        (
            "aclnnTransposeBatchMatMul",
            (weight, weight, None, None, [0, 1, 2], [0, 1, 2], [1, 0, 2], 0, 1, weight),
            "expected [3, 6",
        ),
    ]
    for name, arguments, words in cases:
        status, message = first_phase(name, *arguments)
        assert status == INVALID_ARGUMENT and words in message, message
