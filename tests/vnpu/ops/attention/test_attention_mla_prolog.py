"""What comes before multi-head latent attention, by steps in float64 that round where hardware stores."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_npu
from aclnn import SIGNATURES, first_phase, run
from ascendcl import python

TILING = 561002
BFLOAT, F32, INT8, LONG = torch.bfloat16, torch.float32, torch.int8, torch.int64
HIDDEN, WIDE, HEADS, WIDTH, NARROW, TURNED, SIZE = 1024, 1536, 2, 128, 512, 64, 16
EPSILON, FACTOR_Q, FACTOR_KV = 1e-5, 1.5, 0.75
UPPER = HEADS * (WIDTH + TURNED)


@pytest.fixture(autouse=True)
def _private_formats() -> Iterator[None]:
    """Without it npu_format_cast only changes the name of the format."""
    torch.npu.config.allow_internal_format = True
    yield
    torch.npu.config.allow_internal_format = False


def skip_in_an_older_cann() -> None:
    """The third version's parameters are those of CANN 8.5 and later."""
    if os.environ.get("VNPU_CANN", "").startswith("8.3"):
        pytest.skip("CANN 8.3 calls it with other parameters")


def stored(values: torch.Tensor) -> torch.Tensor:
    return values.to(BFLOAT).double()


def fractal(weight: torch.Tensor) -> torch.Tensor:
    return torch_npu.npu_format_cast(weight.npu(), 29)


class Case:
    """Operands, and by `expect` what becomes of them. `weights`, `keeps`: weightQuantMode and kvCacheQuantMode."""

    def __init__(self, weights: int, keeps: int, cache: str, shape: tuple[int, ...], *, smooth: bool = False) -> None:
        torch.manual_seed(weights * 10 + keeps)
        self.weights, self.keeps, self.cache, self.shape = weights, keeps, cache, shape
        self.tokens = math.prod(shape)

        def real(*sizes: int) -> torch.Tensor:
            return (torch.randn(sizes) / math.sqrt(sizes[0] if len(sizes) == 2 else 1)).to(BFLOAT)

        def whole(*sizes: int) -> torch.Tensor:
            return torch.randint(-20, 20, sizes, dtype=INT8)

        inner, upper = (whole if weights == 2 else real), (whole if weights else real)
        self.x = inner(self.tokens, HIDDEN).view(*shape, HIDDEN)
        self.down, self.up, self.down_kv = (inner(HIDDEN, WIDE), upper(WIDE, UPPER), inner(HIDDEN, NARROW + TURNED))
        self.key = (torch.randn(HEADS, WIDTH, NARROW) / 11).to(BFLOAT)
        self.gamma_q, self.gamma_kv = (torch.rand(size).to(BFLOAT) + 0.5 for size in (WIDE, NARROW))
        angle = torch.rand(*shape, TURNED) * 6
        self.sin, self.cos = angle.sin().to(BFLOAT), angle.cos().to(BFLOAT)
        self.scales: dict[str, torch.Tensor] = {}
        if weights == 2:
            self.scales |= {"x": torch.rand(self.tokens, 1) / 50, "down": torch.rand(1, WIDE) / 50}
            self.scales["down_kv"] = torch.rand(1, NARROW + TURNED) / 50
        if weights:
            self.scales["up"] = torch.rand(1, UPPER) / 50
        if smooth:
            self.scales["smooth"] = torch.rand(1, WIDE) + 0.5
        if keeps == 1:
            self.scales["kv"] = torch.tensor([30.0])
        if keeps == 2:
            self.scales |= {"kv": 20 + torch.rand(1, NARROW) * 20, "kr": 20 + torch.rand(1, TURNED) * 20}
        self.pages = 6
        before = (*shape, 1) if cache in ("BSND", "TND") else (self.pages, SIZE, 1)
        row, kind = 656 if keeps == 3 else NARROW, INT8 if keeps else BFLOAT
        self.kv = torch.full((*before, row), 7).to(kind)
        self.kr = torch.full((0,) if keeps == 3 else (*before, TURNED), 5).to(INT8 if keeps == 2 else BFLOAT)
        self.index: torch.Tensor | None = None
        self.lengths: torch.Tensor | None = None
        if cache.startswith("PA_BLK"):  # a page for every 16 tokens of a sequence
            if len(shape) == 2:
                count = -(-shape[1] // SIZE)
                self.index = torch.randperm(self.pages)[: shape[0] * count].view(shape[0], count)
            else:
                ends = [self.tokens // 3, self.tokens]
                self.lengths = torch.tensor(ends, dtype=torch.int32)
                count = sum(-(-n // SIZE) for n in (ends[0], ends[1] - ends[0]))
                self.index = torch.randperm(self.pages)[:count]
        elif cache.startswith("PA_"):
            self.index = torch.randperm(self.pages * SIZE)[: self.tokens].view(shape)
            self.index.view(-1)[0] = -1  # stays out

    def product(self, x: torch.Tensor, weight: torch.Tensor, rows: Any, columns: Any) -> torch.Tensor:
        made = x.double() @ weight.double()
        return stored(made) if weight.dtype == BFLOAT else made * rows.double() * columns.double()

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, heads, 64]: neighbours are a pair, which comes out apart."""
        cos, sin = (angle.double().view(self.tokens, 1, TURNED) for angle in (self.cos, self.sin))
        a, b = x[..., 0::2], x[..., 1::2]
        half = TURNED // 2
        return torch.cat((a * cos[..., :half] - b * sin[..., :half], b * cos[..., half:] + a * sin[..., half:]), -1)

    def normed(self, x: torch.Tensor, gamma: torch.Tensor, factor: float) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + EPSILON).sqrt() * gamma.double() * factor

    def expect(self, factors: tuple[float, float]) -> dict[str, torch.Tensor]:
        s, x, found = self.scales, self.x.view(self.tokens, HIDDEN), {}
        wide = self.normed(self.product(x, self.down, s.get("x"), s.get("down")), self.gamma_q, factors[0])
        if self.weights:
            wide = wide * s["smooth"].double() if "smooth" in s else wide
            scale = wide.abs().amax(-1, keepdim=True) / 127
            found["normed"], found["normed_scale"] = (wide / scale).round(), scale
            upper = self.product(found["normed"], self.up, scale, s["up"])
        else:
            found["normed"] = stored(wide)
            upper = self.product(stored(wide), self.up, None, None)
        upper = upper.view(self.tokens, HEADS, WIDTH + TURNED)
        query = stored(torch.einsum("thd,hdn->thn", stored(upper[..., :WIDTH]), self.key.double()))
        positions = self.turned(upper[..., WIDTH:])
        if self.keeps == 1:
            scale = query.abs().amax(-1, keepdim=True) / 127
            found["query_scale"], query = scale, (query / scale).round()
            positions = stored(positions) * s["kv"].double() / scale
        found |= {"query": query, "positions": positions}
        down = self.product(x, self.down_kv, s.get("x"), s.get("down_kv"))
        row = self.normed(down[:, :NARROW], self.gamma_kv, factors[1])
        found |= {"row": row, "row_positions": self.turned(down[:, None, NARROW:])[:, 0]}
        return found

    def arguments(self, third: bool) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        def there(tensor: torch.Tensor | None) -> torch.Tensor | None:
            return None if tensor is None else tensor.npu()

        s = {name: scale.npu() for name, scale in self.scales.items()}
        if not third and self.keeps == 1:
            s["kv"] = s["kv"].expand(1, NARROW).contiguous()
        outs = {
            "query": torch.zeros(*self.shape, HEADS, NARROW, dtype=INT8 if self.keeps == 1 else BFLOAT),
            "positions": torch.zeros(*self.shape, HEADS, TURNED, dtype=BFLOAT),
            "normed": torch.zeros(*self.shape, WIDE, dtype=INT8 if self.weights else BFLOAT),
        }
        if self.keeps == 1:
            outs["query_scale"] = torch.zeros(self.tokens, HEADS, 1)
        if self.weights:
            outs["normed_scale"] = torch.zeros(self.tokens, 1)
        outs = {name: out.npu() for name, out in outs.items()} | {"kv": self.kv.npu(), "kr": self.kr.npu()}
        index = there(self.index)
        given = {
            "tokenX": self.x.npu(),
            "weightDq": fractal(self.down),
            "weightUqQr": fractal(self.up),
            "weightUk": self.key.npu(),
            "weightDkvKr": fractal(self.down_kv),
            "rmsnormGammaCq": self.gamma_q.npu(),
            "rmsnormGammaCkv": self.gamma_kv.npu(),
            "ropeSin": self.sin.npu(),
            "ropeCos": self.cos.npu(),
            "cacheIndex": index,
            "cacheIndexOptional": index,
            "kvCacheRef": outs["kv"],
            "krCacheRef": outs["kr"],
            "dequantScaleXOptional": s.get("x"),
            "dequantScaleWDqOptional": s.get("down"),
            "dequantScaleWUqQrOptional": s.get("up"),
            "dequantScaleWDkvKrOptional": s.get("down_kv"),
            "quantScaleCkvOptional": s.get("kv"),
            "quantScaleCkrOptional": s.get("kr"),
            "smoothScalesCqOptional": s.get("smooth"),
            "actualSeqLenOptional": there(self.lengths),
            "rmsnormEpsilonCq": EPSILON,
            "rmsnormEpsilonCkv": EPSILON,
            "cacheModeOptional": self.cache,
            "weightQuantMode": self.weights,
            "kvCacheQuantMode": self.keeps,
            "queryQuantMode": int(self.keeps == 1),
            "ckvkrRepoMode": int(self.keeps == 3),
            "quantScaleRepoMode": int(self.keeps == 3),
            "tileSize": 128,
            "qcQrScale": FACTOR_Q,
            "kcScale": FACTOR_KV,
            "queryOut": outs["query"],
            "queryRopeOut": outs["positions"],
            "dequantScaleQNopeOutOptional": outs.get("query_scale"),
            "queryNormOutOptional": outs["normed"],
            "dequantScaleQNormOutOptional": outs.get("normed_scale"),
        }
        return given, outs

    def places(self) -> list[int]:
        if self.index is None:
            return list(range(self.tokens))
        if not self.cache.startswith("PA_BLK"):
            return self.index.flatten().tolist()
        ends = (
            [self.shape[1] * (b + 1) for b in range(self.shape[0])] if self.lengths is None else self.lengths.tolist()
        )
        pages, found, start = self.index.flatten().tolist(), [], 0
        for end in ends:
            found += [pages[i // SIZE] * SIZE + i % SIZE for i in range(end - start)]
            pages, start = pages[-(-(end - start) // SIZE) :], end
        return found

    def rows_of(self, cache: torch.Tensor) -> torch.Tensor:
        """The cache as rows in the order of their places."""
        if self.cache.endswith("_NZ"):
            block = 32 // cache.element_size()
            cache = cache.view(self.pages, -1, SIZE, block).transpose(1, 2)
        return cache.reshape(-1, cache.shape[-1] if not self.cache.endswith("_NZ") else cache.shape[2] * cache.shape[3])


def near(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Of bfloat16 within what a rounding that falls the other way makes of the next product; of int8 by one."""
    actual, kind = actual.cpu().double().reshape(expected.shape), actual.dtype
    if kind == INT8:
        assert (actual - expected.round().clamp(-128, 127)).abs().max() <= 1
        assert (actual != expected.round().clamp(-128, 127)).double().mean() < 0.1
        return
    step = 2e-2 if kind == BFLOAT else 1e-2
    torch.testing.assert_close(actual, expected, rtol=step, atol=step * float(expected.abs().max()) / 2)


def check(case: Case, third: bool) -> None:
    if third:
        skip_in_an_older_cann()
    name = f"aclnnMlaPrologV{3 if third else 2}WeightNz"
    given, outs = case.arguments(third)
    run(name, *(given.get(param) for _, param, _ in SIGNATURES[name]["params"]))
    found = case.expect((FACTOR_Q, FACTOR_KV) if third else (1.0, 1.0))
    for key in ("query", "positions", "query_scale", *(("normed", "normed_scale") if third else ())):
        if key in found and key in outs:
            near(outs[key], found[key])
    kept = [place for place in case.places() if place >= 0]
    rows = [i for i, place in enumerate(case.places()) if place >= 0]
    kv = case.rows_of(outs["kv"].cpu())
    untouched = torch.ones(len(kv), dtype=torch.bool).index_fill(0, torch.tensor(kept), False)
    assert (kv[untouched] == 7).all()
    row, positions = found["row"][rows], found["row_positions"][rows]
    if case.keeps == 3:
        scale = kv[kept, 640:].view(F32).double()
        near(kv[kept, 640:].view(F32), row.view(-1, 4, 128).abs().amax(-1) / 127)
        near(kv[kept, :512].view(-1, 4, 128), row.view(-1, 4, 128) / scale.unsqueeze(-1))
        near(kv[kept, 512:640].view(BFLOAT), positions)
        return
    kr = case.rows_of(outs["kr"].cpu())
    assert (kr[untouched] == 5).all()
    near(kv[kept], row * case.scales["kv"].double() if case.keeps else row)
    near(kr[kept], positions * case.scales["kr"].double() if case.keeps == 2 else positions)


@pytest.mark.parametrize(("weights", "keeps"), [(0, 0), (1, 0), (1, 2), (1, 3), (2, 0), (2, 1), (2, 3)], ids=str)
@pytest.mark.parametrize(("cache", "shape"), [("PA_BSND", (2, 3)), ("TND", (5,))])
def test_modes_of_the_third_version(weights: int, keeps: int, cache: str, shape: tuple[int, ...]) -> None:
    check(Case(weights, keeps, cache, shape, smooth=weights == 1), third=True)


@pytest.mark.parametrize(("weights", "keeps"), [(0, 0), (1, 0), (1, 2), (2, 0), (2, 1)], ids=str)
@pytest.mark.parametrize("cache", ["PA_BSND", "PA_NZ"])
def test_modes_of_the_second_version(weights: int, keeps: int, cache: str) -> None:
    check(Case(weights, keeps, cache, (4,), smooth=weights == 2), third=False)


@pytest.mark.parametrize(
    ("cache", "shape"),
    [("BSND", (2, 3)), ("PA_NZ", (3,)), ("PA_BLK_BSND", (2, 17)), ("PA_BLK_NZ", (2, 17)), ("PA_BLK_BSND", (27,))],
)
def test_caches(cache: str, shape: tuple[int, ...]) -> None:
    check(Case(0, 0, cache, shape), third=True)


def by_torch_npu(case: Case) -> tuple[torch.Tensor, ...]:
    given, _ = case.arguments(True)
    names = [
        "tokenX",
        "weightDq",
        "weightUqQr",
        "weightUk",
        "weightDkvKr",
        "rmsnormGammaCq",
        "rmsnormGammaCkv",
        "ropeSin",
        "ropeCos",
        "kvCacheRef",
        "krCacheRef",
    ]
    return torch_npu.npu_mla_prolog_v3(
        *(given[name] for name in names),
        cache_index=given["cacheIndexOptional"],
        rmsnorm_epsilon_cq=EPSILON,
        rmsnorm_epsilon_ckv=EPSILON,
        cache_mode="PA_BSND",
    )


def test_by_torch_npu() -> None:
    skip_in_an_older_cann()
    case = Case(0, 0, "PA_BSND", (2, 2))
    query, positions, *_ = by_torch_npu(case)
    found = case.expect((1.0, 1.0))
    near(query, found["query"])
    near(positions, found["positions"])


@pytest.mark.parametrize(("weights", "keeps"), [(0, 0), (1, 2)], ids=str)
@pytest.mark.parametrize("cache", ["PA_BSND", "PA_NZ"])
def test_the_first_version_of_the_old_api(weights: int, keeps: int, cache: str) -> None:
    """It leaves the caches alone, and gives copies with the rows in their places."""
    case = Case(weights, keeps, cache, (2, 2))
    given, _ = case.arguments(False)
    names = [
        "tokenX",
        "weightDq",
        "weightUqQr",
        "weightUk",
        "weightDkvKr",
        "rmsnormGammaCq",
        "rmsnormGammaCkv",
        "ropeSin",
        "ropeCos",
        "cacheIndex",
        "kvCacheRef",
        "krCacheRef",
    ]
    query, positions, kv, kr = torch_npu.npu_mla_prolog(
        *(given[name] for name in names),
        dequant_scale_w_uq_qr=given["dequantScaleWUqQrOptional"],
        quant_scale_ckv=given["quantScaleCkvOptional"],
        quant_scale_ckr=given["quantScaleCkrOptional"],
        rmsnorm_epsilon_cq=EPSILON,
        rmsnorm_epsilon_ckv=EPSILON,
        cache_mode=cache,
    )
    found = case.expect((1.0, 1.0))
    near(query, found["query"])
    near(positions, found["positions"])
    assert (given["kvCacheRef"] == 7).all() and (given["krCacheRef"] == 5).all()
    rows = [i for i, place in enumerate(case.places()) if place >= 0]
    kept = [case.places()[i] for i in rows]
    for name, cached, before, expected in (("kv", kv, 7, "row"), ("kr", kr, 5, "row_positions")):
        there = case.rows_of(cached.cpu())
        scale = case.scales[name].double() if keeps else 1
        near(there[kept], found[expected][rows] * scale)
        untouched = torch.ones(len(there), dtype=torch.bool).index_fill(0, torch.tensor(kept), False)
        assert (there[untouched] == before).all()


def test_torch_npu_of_an_older_cann() -> None:
    """Before CANN 8.5 torch_npu puts one more between the parameters: a number was taken for a tensor."""
    program = (
        f"import sys\nsys.path[:0] = {[str(folder) for folder in Path(__file__).parents[:2]]!r}\nimport torch_npu\n"
        "torch_npu.npu.config.allow_internal_format = True\n"
        "from test_attention_mla_prolog import Case, by_torch_npu\nby_torch_npu(Case(0, 0, 'PA_BSND', (2, 2)))\n"
    )
    ended = python(program, VNPU_CANN="8.3.RC1")  # torch_npu asks once, while it is loaded
    assert ended.returncode == 1, ended
    assert "CANN 8.3.RC1 calls this operator with other parameters than CANN 8.5 and later" in ended.stderr


def test_nothing_to_do() -> None:
    skip_in_an_older_cann()
    case = Case(0, 0, "PA_BSND", (3,))
    given, outs = case.arguments(True)
    nothing = {name: given[name][:0] for name in ("tokenX", "ropeSin", "ropeCos", "cacheIndexOptional")}
    nothing |= {name: given[name][:0] for name in ("queryOut", "queryRopeOut", "queryNormOutOptional")}
    name = "aclnnMlaPrologV3WeightNz"
    run(name, *((given | nothing).get(param) for _, param, _ in SIGNATURES[name]["params"]))
    assert (outs["kv"] == 7).all()


def f(*shape: int, dtype: torch.dtype = BFLOAT) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device="npu")


@pytest.mark.parametrize("version", [2, 3])
def test_refused(version: int) -> None:
    if version == 3:
        skip_in_an_older_cann()
    name = f"aclnnMlaPrologV{version}WeightNz"
    given, _ = Case(1, 2, "PA_BSND", (3,)).arguments(version == 3)
    index = "cacheIndexOptional" if version == 3 else "cacheIndex"

    def said(**other: Any) -> tuple[int, str]:
        return first_phase(name, *({**given, **other}.get(param) for _, param, _ in SIGNATURES[name]["params"]))

    assert said() == (0, "")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"weightDq": f(HIDDEN, WIDE)}, "FRACTAL_NZ"),
        ({"tokenX": f(3, 1000)}, "one of its sizes is 1000"),
        ({"weightUk": f(3, WIDTH, NARROW)}, "one of its sizes is 3"),
        ({"rmsnormGammaCkv": f(NARROW - 1)}, "rmsnormGammaCkv"),
        ({"ropeSin": f(3, 32)}, "ropeSin"),
        ({"cacheModeOptional": "PA"}, 'cacheModeOptional is "PA"'),
        ({"kvCacheRef": f(6, 24, 1, NARROW, dtype=INT8)}, "a multiple of 16 tokens"),
        ({index: torch.zeros(4, dtype=LONG, device="npu")}, "cacheIndex"),
        ({"dequantScaleWUqQrOptional": None}, "dequantScaleWUqQrOptional is null"),
        ({"quantScaleCkrOptional": None}, "quantScaleCkrOptional is null"),
        ({"dequantScaleXOptional": f(3, 1, dtype=F32)}, "dequantScaleXOptional is given"),
        ({"queryOut": f(3, HEADS, 500)}, "queryOut"),
    ]
    if version == 3:
        cases += [
            ({"weightQuantMode": 3}, "weightQuantMode is 3"),
            ({"kvCacheQuantMode": 1}, "do not go together"),
            ({"queryQuantMode": 1}, "queryQuantMode is 1, expected 0"),
            ({"ckvkrRepoMode": 1}, "ckvkrRepoMode"),
            ({"tileSize": 64}, "tileSize is 64"),
            ({"cacheModeOptional": "BSND"}, "does not allow"),
        ]
    for other, words in cases:
        status, message = said(**other)
        assert status == TILING and words in message, (other.keys(), message)
