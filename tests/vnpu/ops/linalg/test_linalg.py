"""linalg/linalg.cpp: inverse, decompositions, solving, determinants, the cross product."""

from __future__ import annotations

import torch
from aclnn import refused, run
from oracle import DEVICE, check, compare, layouts, random

FLOAT = {"dtypes": [torch.float32], "grad": False}
WELL_CONDITIONED = random(2, 3, 3) + 4 * torch.eye(3, dtype=torch.float64)


def test_inverse_and_determinant() -> None:
    for view in layouts(WELL_CONDITIONED):
        if 0 not in view.stride():
            check(torch.inverse, view, ulps=16, **FLOAT)
            check(torch.slogdet, view, ulps=16, **FLOAT)


def test_qr() -> None:
    for mode in ("reduced", "complete"):
        for shape in ((2, 4, 3), (3, 4)):
            x = random(*shape).float()
            q, r = torch.linalg.qr(x.to(DEVICE), mode)
            wanted_q, wanted_r = torch.linalg.qr(x.double(), mode)
            compare(q, wanted_q, torch.float32, ulps=32)
            compare(r, wanted_r, torch.float32, ulps=32)


def test_singular_values() -> None:
    for full in (False, True):
        x = random(4, 3)
        u, s, vh = torch.linalg.svd(x.float().to(DEVICE), full_matrices=full)
        assert u.shape == (4, 4 if full else 3)
        compare(s, torch.linalg.svdvals(x), torch.float32, ulps=16)
        compare(torch.mm((u[:, :3] * s).cpu(), vh[:3].cpu()).to(DEVICE), x.float().double(), torch.float32, ulps=32)


def test_triangular_solve() -> None:
    a, b = WELL_CONDITIONED, random(2, 3, 2)
    for upper in (True, False):
        check(
            lambda m, y: torch.linalg.solve_triangular(m, y, upper=upper),
            a.triu() if upper else a.tril(),
            b,
            ulps=16,
            **FLOAT,
        )


def test_cross_of_doubles_and_cholesky_of_halves() -> None:
    x, y = random(4, 3), random(4, 3, seed=1)
    out = torch.empty(4, 3, dtype=torch.float64, device="npu")
    run("aclnnLinalgCross", x.npu(), y.npu(), 1, out)
    torch.testing.assert_close(out.cpu(), torch.linalg.cross(x, y), rtol=1e-14, atol=1e-14)
    matrix = (x @ x.mT + 4 * torch.eye(4).double()).half()
    half = torch.empty(4, 4, dtype=torch.float16, device="npu")
    run("aclnnLinalgCholesky", matrix.npu(), False, half)
    compare(half, torch.linalg.cholesky(matrix.double()), torch.float16)


def test_cross() -> None:
    check(torch.linalg.cross, random(4, 3), random(4, 3, seed=1), grad=False, ulps=4)
    check(lambda x, y: torch.linalg.cross(x, y, dim=0), random(3, 4), random(3, 1, seed=1), grad=False, ulps=4)
    check(torch.linalg.cross, torch.tensor([1, 2, 3]), torch.tensor([4, 5, 7]), grad=False)


def test_cross_of_products_that_cancel() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        x, y = (torch.tensor(one, dtype=dtype) for one in ([[3.1, 7.3, 2.9]], [[3.3, 7.1, 2.7]]))
        exact = torch.linalg.cross(x.double(), y.double())
        error = (torch.linalg.cross(x.to(DEVICE), y.to(DEVICE)).cpu().double() - exact).abs()
        assert (error <= 2 * torch.finfo(dtype).eps * exact.abs()).all()


def test_by_c_name() -> None:
    x = WELL_CONDITIONED[0] @ WELL_CONDITIONED[0].mT
    out = torch.empty(3, 3, device=DEVICE)
    for upper in (False, True):
        run("aclnnLinalgCholesky", x.float().to(DEVICE), upper, out)
        compare(out, torch.linalg.cholesky(x, upper=upper), torch.float32, ulps=32)


def test_refused() -> None:
    x = torch.ones(2, 3, device=DEVICE)
    assert "its matrices are not square" in refused("aclnnInverse", x, x)
    assert "mode is 3" in refused("aclnnLinalgQr", x, 3, x, x)
    assert "allowed is size 3 in dim 0" in refused("aclnnLinalgCross", x, x, 0, x)
