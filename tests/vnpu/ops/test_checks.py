"""The table of checks (checks.json, corrections.toml): the library answers as it says, and VNPU_CHECKS=any allows more."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import first_phases
import pytest
import torch
from aclnn import DTYPES, INVALID_ARGUMENT, first_phase
from first_phases import RELATED, ROWS, WORDS, compared, differences
from forked import python
from oracle import DEVICE

F = torch.nn.functional


def x(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype).to(DEVICE)


LACKING: dict[str, Callable[[], object]] = {
    "matrix product": lambda: x(2, 3) @ x(3, 2),
    "batched product": lambda: torch.bmm(x(2, 3, 4), x(2, 4, 3)),
    "linear": lambda: F.linear(x(2, 3), x(4, 3), x(4)),
    "convolution": lambda: F.conv2d(x(1, 2, 5, 5), x(3, 2, 3, 3)),
    "transposed convolution": lambda: F.conv_transpose2d(x(1, 2, 5, 5), x(2, 3, 3, 3)),
    "batch norm": lambda: F.batch_norm(x(2, 3, 4, 4), x(3), x(3), training=True),
    "layer norm": lambda: F.layer_norm(x(2, 3), (3,)),
    "gelu": lambda: F.gelu(x(3)),
    "average pooling": lambda: F.avg_pool2d(x(1, 2, 4, 4), 2),
    "integer product": lambda: x(2, 3, dtype=torch.int32) @ x(3, 2, dtype=torch.int32),
    "integer silu": lambda: F.silu(x(3, dtype=torch.int64)),
}


@pytest.mark.parametrize("name", LACKING)
def test_what_the_chip_lacks_is_refused(name: str) -> None:
    with pytest.raises(RuntimeError) as error:
        LACKING[name]()
    found = str(error.value)
    assert f"error code is {INVALID_ARGUMENT}" in found or str(INVALID_ARGUMENT) in found
    assert re.search(r"parameter \w+ has dtype \w+, allowed are .*float32.* on Ascend910B1", found)
    assert "VNPU_CHECKS=any" in found


def test_what_is_documented_is_allowed() -> None:
    """float64 where the AI CPU has it, and what moves values."""
    assert (x(3) + x(3)).tolist() == [2] * 3 and x(3).exp().sum().item() == pytest.approx(3 * 2.718281828459045)
    assert torch.cat([x(2), x(1)]).cumsum(0).tolist() == [1, 2, 3]


SAME_ALL_OVER = ["aclnnAbs", "aclnnAtan2", "aclnnFloor", "aclnnRsqrt", "aclnnSilu", "aclnnMish", "aclnnHardswish"]


@pytest.mark.parametrize("operator", SAME_ALL_OVER)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])
def test_the_first_phase_follows_the_table(operator: str, dtype: torch.dtype) -> None:
    """Operators whose tensors have one dtype: what is accepted is accepted in a whole call."""
    row = ROWS[operator]
    word = next(word for word, each in WORDS.items() if each == dtype)
    lists = [limits["910B"].dtypes for limits in row.parameters.values()]
    status, message = first_phase(operator, *[x(2, 3, dtype=dtype)] * len(row.parameters))
    if all(word in each for each in lists if each is not None):
        assert status == 0, message
    else:
        assert status == INVALID_ARGUMENT and "has dtype" in message


def test_the_library_answers_as_the_table() -> None:
    """Every row, every parameter, every dtype, and one dimension more than allowed."""
    assert compared() > 20_000
    assert differences("910B") == []


def test_what_is_excused_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_phases, "RELATED", {})
    found = differences("910B", {name: ROWS[name] for name in (of.split()[0] for of in RELATED)})
    assert {" ".join(each.split()[:2]) for each in found} == RELATED.keys()


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3"])
def test_other_chips_answer_as_their_columns(soc: str) -> None:
    column = soc.removeprefix("Ascend")[:4]
    program = (
        "from torchport import vnpu\nvnpu.activate(force=True)\nimport json, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        f"from first_phases import differences\nprint(json.dumps(differences({column!r})))"
    )
    ended = python(program, VNPU_SOC=soc)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == []


def test_a_wrong_row_is_noticed() -> None:
    """The negative control: a dtype, a rank and two pairs that the library does not know of."""
    exp, add = ROWS["aclnnExp"], ROWS["aclnnAdd"]
    limits = exp.parameters["self"]["910B"]
    planted = {
        "aclnnExp": exp._replace(
            parameters={"self": {"910B": limits._replace(dtypes=(*limits.dtypes, "u16"), max_rank=7)}}
        ),
        "aclnnAdd": add._replace(parameters={}, same=[("self", "other")]),
        "aclnnFloor": ROWS["aclnnFloor"]._replace(promotable=[("self", "out")]),
        "aclnnMv": ROWS["aclnnMv"]._replace(numbers={"cubeMathType": {"910B": "-2..3"}}),
    }
    wrong = differences("910B", planted)
    assert [each.partition(":")[0] for each in wrong] == [
        "aclnnExp self u16",
        "aclnnExp self rank 8",
        "aclnnAdd self other",
        "aclnnFloor self out",
        "aclnnMv cubeMathType -2",
        "aclnnMv cubeMathType 4",
    ]


PROGRAM = """
from torchport import vnpu
vnpu.activate(force=True)
import torch, torch_npu
torch.manual_seed(0)
x, w = torch.randn(4, 3, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
image, kernel = torch.randn(1, 2, 5, 5, dtype=torch.float64), torch.randn(3, 2, 3, 3, dtype=torch.float64)
torch.testing.assert_close((x.npu() @ w.npu()).cpu(), x @ w, rtol=1e-14, atol=1e-14)
f = torch.nn.functional
torch.testing.assert_close(f.conv2d(image.npu(), kernel.npu()).cpu(), f.conv2d(image, kernel), rtol=1e-13, atol=1e-13)
torch.testing.assert_close(f.gelu(x.npu()).cpu(), f.gelu(x, approximate="tanh"), rtol=1e-14, atol=1e-14)
torch.testing.assert_close(f.layer_norm(x.npu(), (3,)).cpu(), f.layer_norm(x, (3,)), rtol=1e-13, atol=1e-13)
try:
    torch.ones(3).npu().gather(0, torch.zeros(1).npu())
except RuntimeError as error:
    print("kept:", error)
"""


def test_the_switch_allows_them() -> None:
    ended = python(PROGRAM, VNPU_CHECKS="any")
    assert ended.returncode == 0 and "kept:" in ended.stdout, ended.stderr


def test_a_chip_without_bfloat16_refuses_it() -> None:
    program = (
        "from torchport import vnpu\nvnpu.activate(force=True)\nimport torch, torch_npu\n"
        "try:\n    print(torch.ones(3, dtype=torch.bfloat16, device='npu').exp())\n"
        "except RuntimeError as error:\n    print(error)"
    )
    ended = python(program, VNPU_SOC="Ascend910A")
    assert re.search(r"has dtype bfloat16, allowed are .*float16.* on Ascend910A", ended.stdout), ended.stdout
