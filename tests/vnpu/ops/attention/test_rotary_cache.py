"""Rotary position embeddings from a table and into a cache, against float64."""

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import FLOATS, random

TILING_REFUSED = 561002
NARROW = (torch.float16, torch.bfloat16)
NEAR = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Pairs that lie side by side, turned; the result has their halves one behind the other."""
    a, b = x.double()[..., ::2], x.double()[..., 1::2]
    q = torch.cat([a, b], -1)
    return q * cos.double() + torch.cat([-b, a], -1) * sin.double()


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("tokens", [1, 3])
def test_interleave_rope(dtype: torch.dtype, tokens: int) -> None:
    x = random(2, 4, 3, 64).to(dtype)
    cos, sin = (random(2, 1, tokens, 64, seed=seed).to(dtype) for seed in (1, 2))
    out = torch_npu.npu_interleave_rope(x.npu(), cos.npu(), sin.npu())
    torch.testing.assert_close(out.cpu().double(), turned(x, cos, sin), rtol=NEAR[dtype], atol=NEAR[dtype])


def test_interleave_rope_refuses() -> None:
    x, cos = (torch.ones(2, size, 3, 64, dtype=torch.float16).npu() for size in (4, 1))
    assert first_phase("aclnnInterleaveRope", x, cos, cos, x)[0] == 0
    assert first_phase("aclnnInterleaveRope", x, x, x, x)[0] == TILING_REFUSED
    narrow = x[..., :32].contiguous()
    assert first_phase("aclnnInterleaveRope", narrow, cos, cos, narrow)[0] == TILING_REFUSED


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("sections", [None, "default", "interleave"])
def test_mrope(dtype: torch.dtype, halves: bool, sections: str | None) -> None:
    tokens, head, width = 5, 16, 12
    query, key = random(tokens, 3 * head).to(dtype), random(tokens, head, seed=1).to(dtype)
    table = random(20, width, seed=2).to(dtype)
    generator = torch.Generator().manual_seed(0)
    positions = torch.randint(0, 20, (tokens,) if sections is None else (3, tokens), generator=generator)
    angles = table.double()[positions]
    if sections == "default":
        parts = [2, 3, 1]
        which = torch.repeat_interleave(torch.arange(3), torch.tensor(parts))
    else:
        parts = [2, 2, 2]
        which = torch.tensor([i % 3 if i < 6 else 0 for i in range(6)])
    if sections is not None:
        angles = torch.stack([angles[int(which[i % 6]), :, i] for i in range(width)], -1)
    cos, sin = (each.unsqueeze(1) for each in angles.chunk(2, -1))

    def expected(x: torch.Tensor) -> torch.Tensor:
        x = x.double().view(tokens, -1, head)
        part, rest = x[..., :width], x[..., width:]
        a, b = part.chunk(2, -1) if halves else (part[..., ::2], part[..., 1::2])
        c, d = a * cos - b * sin, b * cos + a * sin
        joined = torch.cat([c, d], -1) if halves else torch.stack([c, d], -1).flatten(-2)
        return torch.cat([joined, rest], -1).flatten(1)

    outs = [torch.empty_like(each).npu() for each in (query, key)]
    operands = (positions.npu(), query.npu(), key.npu(), table.npu(), parts, head, halves)
    if sections == "interleave":
        run("aclnnRopeWithSinCosCacheV2", *operands, 1, *outs)
    else:
        run("aclnnRopeWithSinCosCache", *operands, *outs)
    for out, x in zip(outs, (query, key), strict=True):
        torch.testing.assert_close(out.cpu().double(), expected(x), rtol=NEAR[dtype], atol=NEAR[dtype])
    again = [torch.empty_like(each) for each in outs]
    run("aclnnRopeWithSinCosCacheV2", *operands, int(sections == "interleave"), *again)
    assert all(torch.equal(one, other) for one, other in zip(again, outs, strict=True))


def test_mrope_refuses() -> None:
    def said(mode: int, head: int) -> int:
        x, table = torch.ones(2, 16).npu(), torch.ones(4, 8).npu()
        positions, out = torch.zeros(2, dtype=torch.int64).npu(), torch.empty(2, 16).npu()
        return first_phase("aclnnRopeWithSinCosCacheV2", positions, x, x, table, [0, 0, 0], head, True, mode, out, out)[
            0
        ]

    assert said(0, 8) == 0
    assert said(2, 8) == said(0, 5) == said(0, 4) == INVALID_ARGUMENT


def rows_in(cache: torch.Tensor, mode: str, index: torch.Tensor, tokens: int) -> dict[tuple[int, int], torch.Tensor]:
    """What lies where each token's row belongs, by batch and token."""
    found = {}
    size = cache.shape[2] if mode == "Norm" else cache.shape[1]
    pages = -(-tokens // size) if "BLK" in mode else tokens
    for b in range(2):
        for t in range(tokens):
            place = int(index.flatten()[b * pages + (t // size if "BLK" in mode else t)])
            if place < 0:
                continue
            page = b if mode == "Norm" else place // size
            row = t % size if "BLK" in mode else place if mode == "Norm" else place % size
            if mode == "Norm":
                found[b, t] = cache[page, 0, row]
            elif mode.endswith("NZ"):
                block = 32 // cache.element_size()
                found[b, t] = cache[page].reshape(-1, size, block)[:, row].flatten()
            else:
                found[b, t] = cache[page, row, 0]
    return found


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("mode", ["Norm", "PA", "PA_BNSD", "PA_NZ", "PA_BLK_BNSD", "PA_BLK_NZ"])
@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize("with_v", [False, True])
def test_kv_norm_rope_cache(dtype: torch.dtype, mode: str, quantised: bool, with_v: bool) -> None:
    tokens, size, epsilon = 3, 4, 1e-5
    width = 192 if with_v else 64 + 64
    kv, gamma = random(2, 1, tokens, width).to(dtype), random(192 if with_v else 64, seed=1).to(dtype)
    cos, sin = (random(2, 1, tokens, 64, seed=seed).to(dtype) for seed in (2, 3))
    v = random(2, 1, tokens, 128, seed=4).to(dtype) if with_v else None

    def normalised(x: torch.Tensor) -> torch.Tensor:
        return x / torch.sqrt(x.square().mean(-1, keepdim=True) + epsilon) * gamma.double()

    if with_v:
        every = normalised(kv.double())
        key, value = torch.cat([turned(every[..., :64], cos, sin), every[..., 64:]], -1), v.double()
    else:
        key, value = turned(kv[..., 64:], cos, sin), normalised(kv.double()[..., :64])
    widths = (192, 128) if with_v else (64, 64)
    scales = [random(each, low=5, high=30, seed=each).float() for each in widths]
    offsets = [random(each, low=-5, high=5, seed=each + 1).float() for each in widths]
    kind = torch.int8 if quantised else dtype
    shapes = [(2, 1, 5, each) if mode == "Norm" else (4, size, 1, each) for each in widths]
    caches = [torch.full(shape, 7, dtype=kind).npu() for shape in shapes]
    index = {"Norm": torch.tensor([[0, 2, 4], [1, -1, 3]])}.get(mode, torch.tensor([3, 8, -1, 0, 14, 6]))
    if "BLK" in mode:
        index = torch.tensor([8, 4])
    found = torch_npu.npu_kv_rmsnorm_rope_cache(
        kv.npu(),
        gamma.npu(),
        cos.npu(),
        sin.npu(),
        index.npu(),
        *caches,
        k_rope_scale=scales[0].npu() if quantised else None,
        c_kv_scale=scales[1].npu() if quantised else None,
        k_rope_offset=offsets[0].npu() if quantised else None,
        c_kv_offset=offsets[1].npu() if quantised else None,
        v=v.npu() if with_v else None,
        epsilon=epsilon,
        cache_mode=mode,
        is_output_kv=True,
    )
    for out, right in zip(found[2:], (key, value), strict=True):
        torch.testing.assert_close(out.cpu().double(), right, rtol=NEAR[dtype], atol=NEAR[dtype])
    for cache, right, scale, offset in zip(caches, (key, value), scales, offsets, strict=True):
        rows = rows_in(cache.cpu(), mode, index, tokens)
        assert len(rows) == (6 if "BLK" in mode else 5)
        for (b, t), row in rows.items():
            if quantised:
                exact = (right[b, 0, t] * scale.double() + offset.double()).clamp(-128, 127)
                assert bool(((row.double() - exact).abs() <= 0.502).all())
            else:
                torch.testing.assert_close(row.double(), right[b, 0, t], rtol=NEAR[dtype], atol=NEAR[dtype])
        untouched = (cache.cpu() == 7).flatten(-1).sum()
        assert int(untouched) >= cache.numel() - len(rows) * right.shape[-1]


def test_kv_norm_rope_cache_refuses() -> None:
    def said(mode: str, width: int) -> int:
        half = {"dtype": torch.float16}
        kv, gamma = torch.ones(1, 1, 2, width, **half).npu(), torch.ones(64, **half).npu()
        cos, index = torch.ones(1, 1, 2, 64, **half).npu(), torch.zeros(2, dtype=torch.int64).npu()
        caches = [torch.ones(2, 4, 1, 64, **half).npu() for _ in range(2)]
        return first_phase(
            "aclnnKvRmsNormRopeCache",
            kv,
            gamma,
            cos,
            cos,
            index,
            *caches,
            None,
            None,
            None,
            None,
            1e-5,
            mode,
            False,
            None,
            None,
        )[0]

    assert said("PA", 128) == 0
    assert said("other", 128) == said("PA", 192) == TILING_REFUSED


@pytest.mark.parametrize("dtype", [torch.int32, *NARROW])
@pytest.mark.parametrize("mode", ["contiguous", "page"])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("bias", [None, torch.int32, torch.float16])
def test_joined_rope_into_a_cache(dtype: torch.dtype, mode: str, flat: bool, bias: torch.dtype | None) -> None:
    integers = dtype == torch.int32
    if bias == torch.int32 and not integers:
        return
    batch, tokens, heads, width = 2, 1 if flat else 2, 3, 16
    total, rows, kind = (heads + 2) * width, batch * tokens, torch.float16 if integers else dtype
    x = torch.randint(-50, 50, (rows, total), dtype=torch.int32) if integers else random(rows, total).to(dtype)
    weight, row = random(total, low=0.01, high=0.05).float(), random(rows, low=0.5, high=2, seed=1).float()
    added = None if bias is None else (random(total, seed=2) * 3).to(bias)
    cos, sin = (random(rows, width, seed=seed).to(kind) for seed in (3, 4))
    scales = [random(width, low=5, high=40, seed=seed).float() for seed in (5, 6)]
    offset = random(width, low=-5, high=5, seed=7).float()
    value = x.double()
    if bias == torch.int32:
        value = value + added.double()
    if integers:
        value = value * weight.double() * row.double()[:, None]
    if bias == torch.float16:
        value = value + added.double()
    parts = value.view(rows, heads + 2, width)

    def half_turned(part: torch.Tensor) -> torch.Tensor:
        a, b = part.chunk(2, -1)
        return part * cos.double()[:, None] + torch.cat([-b, a], -1) * sin.double()[:, None]

    query, key, plain = (half_turned(parts[:, :heads]), half_turned(parts[:, heads : heads + 1]), parts[:, heads + 1 :])
    places = torch.tensor([2, 0] if mode == "contiguous" else [9, 3, 4, 0][:rows], dtype=torch.int32)
    caches = [torch.full((3, 4, 1, width), 99, dtype=torch.int8).npu() for _ in range(2)]
    shape = (batch, total) if flat else (batch, tokens, total)
    turns = [each.view(rows, width) if flat else each.view(batch, tokens, 1, width) for each in (cos, sin)]
    outs = [torch.empty(rows, count, width, dtype=kind).npu() for count in (heads, 1, 1)]
    run(
        "aclnnDequantRopeQuantKvcache",
        x.view(shape).npu(),
        *(each.npu() for each in turns),
        *caches,
        places.npu(),
        scales[0].npu(),
        scales[1].npu(),
        offset.npu(),
        offset.npu(),
        weight.npu() if integers else None,
        row.npu() if integers else None,
        None if added is None else added.npu(),
        [heads * width, width, width],
        "static",
        "BSND",
        True,
        mode,
        *outs,
    )
    near = 4e-3 if kind == torch.float16 else 3e-2
    for out, right in zip(outs, (query, key, plain), strict=True):
        torch.testing.assert_close(out.cpu().double(), right, rtol=near, atol=near)
    for cache, right, scale in zip(caches, (key, plain), scales, strict=True):
        expected = torch.full((3, 4, 1, width), 99.0, dtype=torch.float64)
        for i in range(rows):
            place = int(places[i // tokens]) + i % tokens if mode == "contiguous" else int(places[i])
            at = (i // tokens, place) if mode == "contiguous" else (place // 4, place % 4)
            expected[at] = (right[i] * scale.double() + offset.double()).clamp(-128, 127)
        assert bool(((cache.cpu().double() - expected).abs() <= 0.502).all())


def test_joined_rope_through_torch_npu() -> None:
    x, turn = random(1, 1, 64).half().npu(), random(1, 1, 1, 16, seed=1).half().npu()
    caches = [torch.zeros(1, 2, 1, 16, dtype=torch.int8).npu() for _ in range(2)]
    scale, place = torch.full((16,), 20.0).npu(), torch.tensor([1], dtype=torch.int32).npu()
    found = torch_npu.npu_rope_quant_kvcache(x, turn, turn, *caches, place, scale, scale, [32, 16, 16])
    expected = (x.cpu().double().view(4, 16)[3] * 20).clamp(-128, 127)
    assert bool(((found[4].cpu()[0, 1, 0].double() - expected).abs() <= 0.502).all())
    name, nothing = "aclnnDequantRopeQuantKvcache", [None] * 5
    arguments = [x, turn, turn, *caches, place, scale, scale, *nothing, [32, 16, 16], "static", "BSND", False, None]
    outs = [torch.empty(1, 1, 2, 16, dtype=torch.float16).npu(), None, None]
    assert first_phase(name, *arguments, *outs)[0] == 0
    arguments[13] = [16, 32, 16]
    assert first_phase(name, *arguments, *outs)[0] == TILING_REFUSED


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize("wanted", [False, True])
def test_qkv_norm_rope_cache(dtype: torch.dtype, quantised: bool, wanted: bool) -> None:
    rows, width, counts, block = 6, 32, (2, 1, 1), 4
    qkv = random(rows, 4 * width).to(dtype)
    gammas = [random(width, seed=seed).to(dtype) for seed in (1, 2)]
    cos, sin = (random(rows, width, seed=seed).to(dtype) for seed in (3, 4))
    parts = qkv.double().view(rows, 4, width).split(counts, 1)

    def rope(part: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
        x = part / torch.sqrt(part.square().mean(-1, keepdim=True) + 1e-6) * gamma.double()
        a, b = x.chunk(2, -1)
        return (x * cos.double()[:, None] + torch.cat([-b, a], -1) * sin.double()[:, None]).flatten(1)

    expected = rope(parts[0], gammas[0]), rope(parts[1], gammas[1]), parts[2].flatten(1)
    kind, piece = (torch.int8, 32) if quantised else (dtype, 16)
    caches = [torch.zeros(3, width // piece, block, piece, dtype=kind).npu() for _ in range(2)]
    scales = [random(1, width, low=0.05, high=0.2, seed=seed).float() for seed in (5, 6)]
    index, query = torch.tensor([5, -1, 0, 11, 7, 2]), torch.empty(rows, 2 * width, dtype=dtype).npu()
    found = torch_npu.npu_qkv_rms_norm_rope_cache(
        qkv.npu(),
        *(each.npu() for each in gammas),
        cos.npu(),
        sin.npu(),
        index.npu(),
        query,
        *caches,
        qkv_size=[2, 3, 4, width],
        head_nums=list(counts),
        k_scale=scales[0].npu() if quantised else None,
        v_scale=scales[1].npu() if quantised else None,
        epsilon=1e-6,
        cache_mode="PA_NZ",
        is_output_qkv=wanted,
    )
    near = NEAR[dtype]
    torch.testing.assert_close(query.cpu().double(), expected[0], rtol=near, atol=near)
    if wanted:
        for out, right in zip(found, expected, strict=True):
            torch.testing.assert_close(out.cpu().double(), right, rtol=near, atol=near)
    for cache, right, scale in zip(caches, expected[1:], scales, strict=True):
        for i, place in enumerate(index.tolist()):
            if place < 0:
                continue
            row = cache.cpu()[place // block, :, place % block].flatten().double()
            if quantised:
                assert bool(((row - (right[i] / scale[0].double()).clamp(-128, 127)).abs() <= 0.502).all())
            else:
                torch.testing.assert_close(row, right[i], rtol=near, atol=near)


def test_qkv_norm_rope_cache_refuses() -> None:
    def said(mode: str, heads: int) -> int:
        half = {"dtype": torch.float16}
        qkv, row = torch.ones(1, 96, **half).npu(), torch.ones(1, 32, **half).npu()
        gamma, index = torch.ones(32, **half).npu(), torch.zeros(1, dtype=torch.int64).npu()
        cache = torch.ones(1, 2, 4, 16, **half).npu()
        return first_phase(
            "aclnnQkvRmsNormRopeCache",
            qkv,
            gamma,
            gamma,
            row,
            row,
            index,
            row,
            cache,
            cache,
            None,
            None,
            None,
            None,
            [1, 1, heads, 32],
            [1, 1, 1],
            1e-6,
            mode,
            None,
            None,
            None,
        )[0]

    assert said("PA_NZ", 3) == 0
    assert said("Norm", 3) == said("PA_NZ", 4) == TILING_REFUSED
