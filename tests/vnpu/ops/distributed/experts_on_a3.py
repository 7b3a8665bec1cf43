"""Mixtures of experts on two to eight dies of an A3: run by test_ranks_experts."""

from __future__ import annotations

import pytest
import torch
from aclnn import RefusedError
from experts import Mixture
from ranks import group, refusal, run_ranks

HALF, BFLOAT = torch.float16, torch.bfloat16
TILING = 561002


def two_ranks() -> None:
    with group(2) as name:
        for version in ("V2", "V3", "V4"):
            for dtype in (HALF, BFLOAT):
                mixture = Mixture(2, 6, 3, dtype=dtype)
                for counted in (0, 1):
                    results = mixture.dispatch(f"aclnnMoeDistributeDispatch{version}", name, counted=counted)
                    mixture.check_dispatch(results, counted)
                outs = mixture.combine(f"aclnnMoeDistributeCombine{version}", name, results)
                mixture.check_combined(outs, mixture.combined())
        for mask in ("tokens", "pairs"):
            mixture = Mixture(2, 4, 2, mask=mask)
            results = mixture.dispatch("aclnnMoeDistributeDispatchV2", name)
            mixture.check_dispatch(results)
            outs = mixture.combine("aclnnMoeDistributeCombineV2", name, results)
            mixture.check_combined(outs, mixture.combined())
        mixture = Mixture(2, 4, 2, shared=1)
        for scales in (None, 0.5 + torch.rand(5, 1024)):
            results = mixture.dispatch("aclnnMoeDistributeDispatchV4", name, 2, scales)
            mixture.check_dispatch(results, quantized=True, scales=scales)
        mixture = Mixture(2, 4, 2)
        results = mixture.dispatch("aclnnMoeDistributeDispatchV2", name)
        shared = [torch.rand(5, 1024).half() for _ in range(2)]
        expected = [a + b.double() for a, b in zip(mixture.combined(), shared, strict=True)]
        outs = mixture.combine("aclnnMoeDistributeCombineV2", name, results, shared_x=shared)
        mixture.check_combined(outs, expected)
        outs = mixture.combine("aclnnMoeDistributeCombineV2", name, results, quantized=2)
        mixture.check_combined(outs, mixture.combined(), loose=40)  # a part in 254 of eight elements' largest
        assert any(
            (out.cpu().double() - want).abs().max() > 2e-3
            for (out,), want in zip(outs, mixture.combined(), strict=True)
        )


def experts_that_stand_for_something() -> None:
    with group(2) as name:
        mixture = Mixture(2, 4, 4, tokens=8, special=(1, 2, 2))
        tensors = [
            [mixture.x[rank], torch.rand(2).half(), torch.rand(2).half(), torch.rand(2, 1024).half()]
            for rank in range(2)
        ]

        def meaning(rank: int, token: int, number: int) -> torch.Tensor:
            x, alpha1, alpha2, constant = (tensor.double() for tensor in tensors[rank])
            if number < 1:
                return torch.zeros(1024, dtype=torch.float64)
            if number < 3:
                return x[token]
            return alpha1[number - 3] * x[token] + alpha2[number - 3] * constant[number - 3]

        for version in ("V3", "V4"):
            results = mixture.dispatch(f"aclnnMoeDistributeDispatch{version}", name)
            mixture.check_dispatch(results)
            outs = mixture.combine(f"aclnnMoeDistributeCombine{version}", name, results, special=tensors)
            mixture.check_combined(outs, mixture.combined(meaning))


def shared_experts() -> None:
    for ranks, shared, copies in ((3, 1, 1), (4, 1, 2), (4, 2, 1)):
        with group(ranks) as name:
            mixture = Mixture(ranks, 4, 2, tokens=3, shared=shared, shared_ranks=shared * copies)
            results = mixture.dispatch("aclnnMoeDistributeDispatchV2", name)
            mixture.check_dispatch(results)
            outs = mixture.combine("aclnnMoeDistributeCombineV2", name, results)
            mixture.check_combined(outs, mixture.combined())
            scales = 0.5 + torch.rand(shared + 4, 1024)
            results = mixture.dispatch("aclnnMoeDistributeDispatchV2", name, 2, scales)
            mixture.check_dispatch(results, quantized=True, scales=scales)


def norm_of_the_sum() -> None:
    with group(2) as name:
        mixture = Mixture(2, 4, 2, dtype=BFLOAT)
        residual = [torch.rand(5, 1, 1024).bfloat16() for _ in range(2)]
        gamma, epsilon = torch.rand(1024).bfloat16(), 1e-3
        results = mixture.dispatch("aclnnMoeDistributeDispatchV2", name)
        for operator in ("aclnnMoeDistributeCombineAddRmsNorm", "aclnnMoeDistributeCombineAddRmsNormV2"):
            outs = mixture.combine(operator, name, results, norm=(residual, gamma, epsilon))
            for (y, rstd, x), sum_, add in zip(outs, mixture.combined(), residual, strict=True):
                total = sum_ + add.double().squeeze(1)
                root = 1 / (total.square().mean(1, keepdim=True) + epsilon).sqrt()
                torch.testing.assert_close(x.cpu().double().squeeze(1), total, rtol=8e-3, atol=8e-3)
                torch.testing.assert_close(rstd.cpu().double().squeeze(1), root, rtol=1e-4, atol=1e-4)
                torch.testing.assert_close(
                    y.cpu().double().squeeze(1), total * root * gamma.double(), rtol=1.6e-2, atol=8e-3
                )


def first_version() -> None:
    with group(8) as name:
        mixture = Mixture(8, 8, 2, tokens=1, width=7168, shared=1)
        results = mixture.dispatch("aclnnMoeDistributeDispatch", name)
        mixture.check_dispatch(results)
        outs = mixture.combine("aclnnMoeDistributeCombine", name, results)
        mixture.check_combined(outs, mixture.combined())


def barrier() -> None:
    with group(2) as name:
        x = [torch.rand(3, device=f"npu:{rank}") for rank in range(2)]
        kept = [each.cpu() for each in x]
        run_ranks("aclnnDistributeBarrier", [[x[rank], name, 2] for rank in range(2)])
        run_ranks("aclnnDistributeBarrierV2", [[x[rank], None, None, name, 2] for rank in range(2)])
        assert all(torch.equal(a.cpu(), b) for a, b in zip(x, kept, strict=True))
        status, message = refusal("aclnnDistributeBarrier", x[0], name, 3)
        assert status == TILING and "worldSize is 3, the group has 2" in message, message


def more_than_the_buffer_holds() -> None:
    with group(2) as name:
        mixture = Mixture(2, 16, 2, tokens=512, width=8192)
        with pytest.raises(RefusedError, match="HCCL_BUFFSIZE is 200 MB, the rows of 512 tokens on 2 ranks need"):
            mixture.dispatch("aclnnMoeDistributeDispatchV2", name)


def main() -> None:
    torch.manual_seed(0)
    two_ranks()
    experts_that_stand_for_something()
    shared_experts()
    norm_of_the_sum()
    first_version()
    barrier()
    more_than_the_buffer_holds()
    print("all right")
