"""What torch_npu and op-plugin do in another way from some version of CANN on: one JSON line for each case, with what is
wrong about its result and the functions of CANN that it called."""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

trace = Path(tempfile.mkdtemp()) / "trace"
os.environ["VNPU_TRACE"] = str(trace)

from torchport import vnpu  # noqa: E402

vnpu.activate(force=True)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torch_npu  # noqa: E402

NPU = torch.device("npu:0")
Case = Callable[[], object]


def close(got: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-3) -> None:
    torch.testing.assert_close(got.cpu().double(), expected.double(), rtol=tolerance, atol=tolerance)


def device_properties() -> None:
    free, total = torch.npu.mem_get_info()
    assert torch.npu.get_device_properties(0).total_memory == total >= free > 0


def norms() -> None:
    x = torch.randn(5, 6)
    for p in (0, 1, 2, 3, 4, 0.5, math.inf, -math.inf):
        close(x.to(NPU).norm(p), x.norm(p))
        close(torch.linalg.vector_norm(x.to(NPU), p, dim=1), torch.linalg.vector_norm(x, p, dim=1))
        close(torch.norm(x.to(NPU), p, dim=0, keepdim=True), torch.norm(x, p, dim=0, keepdim=True))


def convolution_backward() -> None:
    """Every choice of gradients: up to 8.5.0 all three are given memory, from 8.5.1 on those that are wanted."""
    values = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)
    for mask in range(1, 8):
        wanted = [bool(mask >> i & 1) for i in range(3)]
        grads = []
        for device in (torch.device("cpu"), NPU):
            leaves = [v.clone().to(device).requires_grad_(w) for v, w in zip(values, wanted, strict=True)]
            F.conv2d(*leaves).square().sum().backward()
            grads.append([leaf.grad for leaf in leaves])
        for expected, got in zip(*grads, strict=True):
            assert (expected is None) == (got is None)
            if expected is not None:
                close(got, expected, 1e-2)


def format_cast() -> None:
    """NC1HWC0 of two dimensions goes the old way in every version."""
    torch.npu.config.allow_internal_format = True
    for shape, form in (((20, 30), 29), ((20, 30), 3), ((2, 20, 3, 5), 3), ((20, 18, 3, 5), 4), ((2, 20, 3, 4, 5), 32)):
        for dtype in (torch.float16, torch.float32):
            x = torch.randn(shape).to(dtype)
            y = torch_npu.npu_format_cast(x.to(NPU), form)
            assert torch_npu.get_npu_format(y) == form
            assert torch.equal(y.cpu(), x)
    torch.npu.config.allow_internal_format = False


def graph() -> None:
    x, captured = torch.zeros(4, device=NPU), torch.npu.NPUGraph()
    with torch.npu.graph(captured):
        y = x + 1
    x.fill_(3)
    captured.replay()
    assert y.cpu().tolist() == [4] * 4


def pinned_memory() -> None:
    pinned, other = torch.randn(1000).pin_memory(), torch.randn(1000)
    assert (pinned.is_pinned(), other.is_pinned()) == (True, False)
    device = pinned.to(NPU, non_blocking=True)
    back = torch.empty(1000).pin_memory()
    back.copy_(device, non_blocking=True)
    torch.npu.synchronize()
    assert torch.equal(back, pinned)


def determinism() -> None:
    x = torch.randn(8, 8)
    for level in (1, 2, 0):
        torch_npu.npu.set_deterministic_level(level)
        close(x.to(NPU) @ x.to(NPU), x @ x)


def copies_of_lists() -> None:
    sources = [torch.randn(3), torch.randn(4, 5)]
    out = [torch.zeros(s.shape, dtype=torch.float16, device=NPU) for s in sources]
    torch._foreach_copy_(out, [s.to(NPU) for s in sources])
    for got, expected in zip(out, sources, strict=True):
        assert torch.equal(got.cpu(), expected.half())


def tokens_of_experts() -> None:
    """From 9.1.0 on the backward pass without weights is not given the tokens."""
    choice = torch.tensor([[0, 1], [1, 2], [0, 2], [2, 1], [1, 0], [0, 1]])
    weights = torch.rand(6, 2)
    for one in (torch.ones(6, 1), weights):
        tokens = torch.randn(6, 8)
        got = tokens.bfloat16().to(NPU).requires_grad_()
        permuted, order = torch_npu.npu_moe_token_permute(got, choice[:, : one.shape[1]].contiguous().to(NPU))
        given = () if one.shape[1] == 1 else (one.bfloat16().to(NPU),)
        out = torch_npu.npu_moe_token_unpermute(permuted, order, *given)
        close(out.detach(), tokens * one.sum(1, keepdim=True), 3e-2)
        out.sum().backward()
        close(got.grad, one.sum(1, keepdim=True).expand(6, 8), 3e-2)


def routing() -> None:
    choice = torch.tensor([[0, 1], [1, 2], [0, 2], [2, 1], [1, 0], [0, 1]], dtype=torch.int32)
    expanded, _, counts, _ = torch_npu.npu_moe_init_routing_v2(
        torch.arange(6.0).reshape(6, 1).expand(6, 8).contiguous().to(NPU),
        choice.to(NPU),
        active_num=12,
        expert_num=3,
        expert_tokens_num_type=1,
        expert_tokens_num_flag=True,
        active_expert_range=[0, 3],
        quant_mode=-1,
        row_idx_type=0,
    )
    assert counts.cpu().tolist() == [4, 5, 3]
    assert expanded[:, 0].cpu().tolist() == [0, 2, 4, 5, 0, 1, 3, 4, 5, 1, 2, 3]


CASES: dict[str, Case] = {
    "device properties": device_properties,
    "norms": norms,
    "convolution backward": convolution_backward,
    "format cast": format_cast,
    "graph": graph,
    "pinned memory": pinned_memory,
    "pinned memory's allocation": lambda: torch.empty(1 << 20).pin_memory(),
    "determinism": determinism,
    "copies of lists": copies_of_lists,
    "tokens of experts": tokens_of_experts,
    "routing": routing,
}

if __name__ == "__main__":
    seen = 0
    for name, case in CASES.items():
        torch.manual_seed(0)
        wrong = ""
        try:
            case()
            torch.npu.synchronize()
        except Exception as error:  # for the test to tell
            wrong = f"{type(error).__name__}: {error}"
        text = trace.read_text(encoding="utf-8")
        calls = sorted(set(re.findall(r"\b(?:acl|Hccl)\w+", text[seen:])))
        seen = len(text)
        print(json.dumps({"name": name, "wrong": wrong, "calls": calls}))
    print(json.dumps({"name": "version", "found": torch_npu.npu.utils.get_cann_version()}))
