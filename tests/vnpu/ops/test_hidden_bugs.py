"""Mistakes of a program that hardware does not notice: errors here, which say so, until VNPU_HIDDEN_BUGS=hardware.

In processes of their own: the failure of a kernel ends the device."""

from __future__ import annotations

import re

import pytest
import torch
from aclnn import INVALID_ARGUMENT, first_phase
from forked import python

START = """
import torch
F = torch.nn.functional
def t(*values, dtype=None):
    return torch.tensor(values, dtype=dtype).npu()
table = torch.arange(12.0).reshape(4, 3).npu()
"""
# The mistake, words of ATen's error, words of what hardware does, the answer that takes the error's place.
ZERO, ANY, CLASS = ("not documented, here 0", "reads any memory, here the nearest place", "not documented, here none")
DRAWN = "something is drawn all the same"
LEAVES = "leaves the dividend as the remainder"
HIDDEN: dict[str, tuple[str, str, str, str]] = {
    "//": ("t(7, -7, 8) // t(0, 0, 3)", "ZeroDivisionError", ZERO, "[0, 0, 2]"),
    "// in place": ("t(7, 8).floor_divide_(t(0, 3))", "ZeroDivisionError", ZERO, "[0, 2]"),
    "// of rows": (
        "torch.ones(2, 2, dtype=torch.int32).npu() // t(0, 1)",
        "ZeroDivisionError",
        ZERO,
        "[[0, 1], [0, 1]]",
    ),
    "div trunc": ("torch.div(t(7, -7), t(0, 2), rounding_mode='trunc')", "ZeroDivisionError", ZERO, "[0, -3]"),
    "%": ("t(7, -7, 8) % t(0, 0, 3)", "ZeroDivisionError", LEAVES, "[7, -7, 2]"),
    "% in place": ("t(7, 8).remainder_(t(0, 3))", "ZeroDivisionError", LEAVES, "[7, 2]"),
    "a number %": ("torch.remainder(7, t(0, 4))", "ZeroDivisionError", LEAVES, "[7, 3]"),
    "fmod": ("torch.fmod(t(7, -7), t(0, 4))", "ZeroDivisionError", LEAVES, "[7, -3]"),
    "embedding": ("F.embedding(t(1, 7), table)", "out of range", ANY, "[[3.0, 4.0, 5.0], [9.0, 10.0, 11.0]]"),
    "embedding_bag": (
        "F.embedding_bag(t(1, 7), table, t(0, 1))",
        "out of bounds",
        ANY,
        "[[3.0, 4.0, 5.0], [9.0, 10.0, 11.0]]",
    ),
    "gather": ("table.gather(0, t(9)[None])", "out of bounds", ANY, "[[9.0]]"),
    "index_select": (
        "table.index_select(1, t(0, 3))",
        "out of",
        ANY,
        "[[0.0, 2.0], [3.0, 5.0], [6.0, 8.0], [9.0, 11.0]]",
    ),
    "index": ("table[t(-1, 9), t(-9, 1)]", "out of bounds", ANY, "[9.0, 10.0]"),
    "take": ("torch.take(table, t(1, 99))", "out of", ANY, "[1.0, 11.0]"),
    "nll_loss": ("F.nll_loss(-table, t(0, 7, 1, 1), reduction='sum')", "out of bounds", CLASS, "17.0"),
    "multinomial": ("torch.multinomial(t(1.0, -1.0, 0.0), 2)[:1]", "has the weight -1", DRAWN, "[0]"),
    "multinomial of few": ("torch.multinomial(t(0.0, 3.0, 0.0), 2)[:1]", "too few to draw 2", DRAWN, "[1]"),
    "binary_cross_entropy": (
        "F.binary_cross_entropy(t(2.0, 0.5), t(1.0, 1.0), reduction='none').exp()",
        "between 0 and 1",
        "the logarithm of what is no probability is nan",
        "[nan, 2.0]",
    ),
}


def failure(call: str, **variables: str) -> str:
    """What the program is told, which ends with the failure of a kernel."""
    program = f"{START}\ntry:\n    {call}\n    torch.npu.synchronize()\nexcept RuntimeError as error:\n    print(error)"
    ended = python(program, **variables)
    assert re.search(r"error code(?: is|:) ?507\d\d\d", ended.stdout), ended
    return ended.stdout


@pytest.mark.parametrize("mistake", HIDDEN)
def test_an_error_that_says_what_hardware_does(mistake: str) -> None:
    call, found, instead, _ = HIDDEN[mistake]
    said = failure(call)
    assert found in said and "(hardware hides this: " in said and instead in said, said
    assert "VNPU_HIDDEN_BUGS=hardware goes on here too" in said, said


@pytest.mark.parametrize("mistake", HIDDEN)
def test_hardware_s_way(mistake: str) -> None:
    call, _, _, answer = HIDDEN[mistake]
    ended = python(f"{START}\nprint(({call}).cpu().tolist())", VNPU_HIDDEN_BUGS="hardware")
    assert ended.stdout == f"{answer}\n", ended


@pytest.mark.parametrize("name", ["FloorDivides", "RemainderTensorScalar", "FmodScalar"])
def test_the_number_zero_is_seen_before_the_kernel(name: str) -> None:
    whole, real = torch.ones(2, dtype=torch.int32).npu(), torch.ones(2).npu()
    status, message = first_phase(f"aclnn{name}", whole, 0, whole)
    assert status == INVALID_ARGUMENT and "other is 0, and out holds integers (hardware hides this" in message
    assert first_phase(f"aclnn{name}", whole, 2, whole)[0] == 0
    assert first_phase(f"aclnn{name}", real, 0, real)[0] == 0


def test_the_number_zero_hardware_s_way() -> None:
    program = f"{START}\nx = t(7, -7, dtype=torch.int32)\nprint((x // 0).tolist(), (x % 0).tolist(), torch.fmod(x, 0).tolist())"
    program += "\nprint(x.clone().remainder_(0).tolist(), torch.div(x, 0).tolist(), (t(1.0) // 0).tolist())"
    ended = python(program, VNPU_HIDDEN_BUGS="hardware")
    assert ended.stdout == "[0, 0] [7, -7] [7, -7]\n[7, -7] [inf, -inf] [inf]\n", ended


# What is right is right both ways, and what hardware does notice, or what would destroy other tensors, is an error.
RIGHT = """
x, y = torch.arange(-6, 6), torch.tensor([-5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 7])
for f in (torch.floor_divide, torch.remainder, torch.fmod, torch.div):
    assert torch.equal(f(x.npu(), y.npu()).cpu(), f(x, y)) and torch.equal(f(x.npu(), 3).cpu(), f(x, 3))
assert torch.equal((y.npu() / t(0)).cpu(), y / 0) and torch.equal((x.float().npu() % 0).isnan().cpu(), torch.ones(12) > 0)
cpu = table.cpu()
assert torch.equal(table[t(-1, 3)].cpu(), cpu[[-1, 3]]) and torch.equal(table[:, t(-1)].cpu(), cpu[:, [-1]])
assert torch.equal(table[table > 4].cpu(), cpu[cpu > 4]) and torch.equal(torch.take(table, t(-1)).cpu(), cpu.flatten()[-1:])
assert torch.equal(table.index_select(0, t(2, 0, dtype=torch.int32)).cpu(), cpu[[2, 0]])
assert torch.equal(table.gather(1, t(2)[None]).cpu(), cpu.gather(1, torch.tensor([[2]])))
p, q = torch.tensor([0.25, 1.0, 0.0]), torch.tensor([0.5, 0.0, 1.0])
torch.testing.assert_close(F.binary_cross_entropy(p.npu(), q.npu()).cpu(), F.binary_cross_entropy(p, q))
target = torch.tensor([0, -100, 2, 1])
torch.testing.assert_close(F.nll_loss(table, target.npu()).cpu(), F.nll_loss(cpu, target))
print("right")
"""
NOTICED = [
    "F.embedding(t(-1), table)",
    "F.embedding_bag(t(1, -1), table, t(0, 1))",
    "F.embedding_bag(t(1, 1), table, t(0, 2, 0))",
    "table.index_fill(0, t(9), 0.0)",
    "table.scatter(0, t(9)[None], 1.0)",
    "table.index_put((t(9),), table[0])",
]


@pytest.mark.parametrize("way", ["error", "hardware"])
def test_what_is_right_stays(way: str) -> None:
    ended = python(START + RIGHT, VNPU_HIDDEN_BUGS=way)
    assert ended.stdout == "right\n", ended


@pytest.mark.parametrize("call", NOTICED)
def test_what_is_an_error_stays_one(call: str) -> None:
    assert "hardware hides this" not in failure(call, VNPU_HIDDEN_BUGS="hardware")
