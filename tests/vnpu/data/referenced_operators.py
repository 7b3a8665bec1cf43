"""Records calls of operators that only an NPU has, with tensors: `python referenced_operators.py FOLDER`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "accuracy"))

import torch
import torch_npu
from recording_run import recorded
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

HEADS, WIDTH, SCALE = 4, 8, 0.3


def drawn(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))).sub(0.5).npu()


def triangle(rows=2048):
    return torch.ones(rows, 2048, dtype=torch.bool).triu(1)


def attend(function, *qkv, layout="BNSD", **options):
    leaves = [one.requires_grad_() for one in qkv]
    more = [
        one.requires_grad_()
        for one in options.values()
        if isinstance(one, torch.Tensor) and one.is_floating_point()
    ]
    out = function(*leaves, HEADS, layout, scale=SCALE, **options)[0]
    torch.autograd.grad(out, [*leaves, *more], drawn(*out.shape))


def heads_first(keys=7, key_heads=2):
    return drawn(2, HEADS, 5, WIDTH), drawn(2, key_heads, keys, WIDTH), drawn(2, key_heads, keys, WIDTH)


def attention():
    one, two = torch_npu.npu_fusion_attention, torch_npu.npu_fusion_attention_v2
    full = torch.zeros(2, 1, 5, 7, dtype=torch.bool)
    full[1, :, 1:, 3:] = True
    prefixed = torch.zeros(3072, 2048, dtype=torch.bool)
    prefixed[:2048], prefixed[2048:, 1024:] = triangle(), True
    for function in (one, two):
        attend(function, *heads_first(), atten_mask=full.npu(), sparse_mode=1)
        attend(function, *heads_first(), pse=drawn(2, HEADS, 5, 7))
        attend(function, *heads_first(), atten_mask=triangle().npu(), sparse_mode=3, sink=drawn(HEADS))
        attend(function, *heads_first(), atten_mask=prefixed.npu(), sparse_mode=6, prefix=[6, 3])
    attend(two, *heads_first(), pse=drawn(2, HEADS, 5, 7), pse_type=0)
    attend(one, *heads_first(), atten_mask=triangle().npu(), sparse_mode=4, pre_tockens=2, next_tockens=1)
    attend(one, *heads_first(), pre_tockens=1, next_tockens=1)  # no mask: no band
    wide, narrow = drawn(2, 5, HEADS * WIDTH), drawn(2, 7, 2 * WIDTH)
    attend(one, wide, narrow, narrow + 0.1, layout="BSH")
    attend(
        one,
        wide.transpose(0, 1).contiguous(),
        narrow.transpose(0, 1).contiguous(),
        narrow.transpose(0, 1) * 2,
        layout="SBH",
    )
    packed = drawn(8, HEADS, WIDTH), drawn(10, 2, WIDTH), drawn(10, 2, WIDTH)
    for mode in (0, 2, 3, 7, 8):
        mask = torch.zeros(5, 6, dtype=torch.bool) if mode == 0 else triangle()
        attend(
            one, *packed, layout="TND", atten_mask=mask.npu(), sparse_mode=mode,
            actual_seq_qlen=[3, 8], actual_seq_kvlen=[4, 10], **({"next_tockens": 0} if mode > 3 else {}),
        )  # fmt: skip


def dropped():
    attend(torch_npu.npu_fusion_attention, *heads_first(), keep_prob=0.7)


def recurrent():
    for kind in (torch.nn.LSTM, torch.nn.GRU):
        for options in ({}, {"bias": False}, {"num_layers": 2, "bidirectional": True}):
            torch.manual_seed(1)
            net = kind(6, 4, **options).npu()
            net(drawn(5, 3, 6))[0].square().sum().backward()
    torch.manual_seed(2)
    net = torch.nn.LSTM(6, 4).npu()
    pack = torch.nn.utils.rnn.pack_padded_sequence(drawn(5, 3, 6).requires_grad_(), torch.tensor([5, 3, 2]))
    net(pack)[0].data.square().sum().backward()


def losses():
    given, target = drawn(4, 3).requires_grad_(), torch.ones(4, 3).npu() * 0.25
    for options in (
        {},
        {"weight": drawn(3).abs(), "reduction": "sum"},
        {"pos_weight": drawn(3).abs(), "reduction": "none"},
    ):
        made = torch.nn.functional.binary_cross_entropy_with_logits(given, target, **options)
        made.sum().backward()


class Off(TorchDispatchMode):
    """Every result of an operator of the NPU's own is off by a thousandth."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if not func._schema.name.startswith("npu::"):
            return made
        return tree_map(
            lambda one: one * 1.001 if isinstance(one, torch.Tensor) and one.is_floating_point() else one,
            made,
        )


def main():
    for folder, mode in (("right", contextlib.nullcontext()), ("wrong", Off())):
        # The recorder is entered later, so it is asked first: it sees what the fault gives.
        with mode, recorded(Path(sys.argv[1], folder), "npu") as made:
            for part in (attention, dropped, recurrent, losses):
                part()
            made.step_done()


if __name__ == "__main__":
    main()
