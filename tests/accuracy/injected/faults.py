"""name -> installer. Each: one operator of the device is wrong."""

import random
import torch
from fl import inject, first, at

R = range(0, 10**9)
H = torch.float16


def half(f):
    return lambda right, *a, **k: right(
        *[x.half() if isinstance(x, torch.Tensor) and x.dtype == torch.float32 else x for x in a], **k
    ).float()


def _bn_eps(right, *a):
    a = list(a)
    a[7] = 1e-3
    return right(*a)


def _sdpa_scale(right, q, *a, **kw):
    # a scale that is 2 % off: the same as a query that is
    return right(q * 1.02, *a, **kw)


def _ln_bwd_half(right, *a):
    o = right(*a)
    g, x, shape, mean, rstd = a[:5]
    n = (x - mean) * rstd
    w = (g * n).reshape(-1, x.shape[-1]).half()
    acc = torch.zeros(w.shape[-1], dtype=torch.float16, device=w.device)
    for r in w:
        acc = acc + r
    return (o[0], acc.float(), o[2])


def _emb_off(right, g, idx, n, pad, scale):
    return right(g, (idx + 1) % n, n, pad, scale)


def _cat_swap(right, ts, dim=0):
    return right(list(ts)[::-1], dim)


def _softmax_mask(right, x, dim, hf):
    # the row maximum is taken of a neighbour: overflow-safe but normalised with fp16 sum
    m = x.amax(dim, keepdim=True)
    e = (x - m).exp()
    s = e.half().sum(dim, keepdim=True).float()
    return e / s


def _rsqrt(right, x):
    # fast reciprocal square root with one Newton step
    y = right(x.to(torch.bfloat16)).float()
    return y * (1.5 - 0.5 * x * y * y)


def _ignore(right, *a):
    # counts ignored targets in the mean
    loss, tw = right(*a)
    n = a[1].numel()
    return (loss * (tw / n), tw)


def _lstm_stale(right, *a, **k):
    o = right(*a, **k)
    y = o[0].clone()
    y[:, -1] = y[:, 0] if y.shape[1] > 1 else y[:, -1]
    return (y,) + tuple(o[1:])


def _bce(right, *a, **k):
    return right(*a, **k) * 4 / 3


def _gn(right, x, w, b, N, C, HW, g, eps):
    return _gn2(right, x, w, b, N, C, HW, g, eps)


def _gn2(right, x, w, b, N, C, HW, g, eps):
    y, m, r = right(x, w, b, N, C, HW, g, eps)
    # biased by n/(n-1): Bessel's correction where there is none
    n = C * HW // g
    s = ((n - 1) / n) ** 0.5
    y2 = y * s if b is None else (y - b.view(1, -1, *[1] * (y.dim() - 2))) * s + b.view(1, -1, *[1] * (y.dim() - 2))
    return y2, m, r * s


def _up(right, *a, **k):
    y = right(*a, **k).clone()
    y[..., -1, :] = y[..., -2, :]
    y[..., -2, :] = y[..., -3, :]
    return y


def _race_scatter(right, x, dim, i, s):
    # the last writer wins for the first 40 sources
    return right(x, dim, i[40:] if i.dim() == 1 else i, s[40:] if i.dim() == 1 else s)


def _overflow_idx(right, x, dim, i):
    return right(x, dim, torch.where(i > 255, i - 256, i))


def _topk(right, *a, **k):
    v, i = right(*a, **k)
    i = i.clone()
    i[0] = i[0].flip(-1)
    return v, i


def _iadd(right, x, dim, i, s, **k):
    y = right(x, dim, i, s, **k)
    return y


def _sin(right, x):
    return right((x.half()).float())


def _flush(right, *a):
    y = right(*a)
    return torch.where(y.abs() < 6.1e-5, torch.zeros_like(y), y)


def _unscale(right, ts, found, inv):
    return right(ts, found, inv * 1.001)


def _trunc(right, x, *a, **k):
    y = right(x, *a, **k)
    if k.get("dtype") == torch.bfloat16 and x.dtype == torch.float32:
        bits = x.contiguous().cpu().view(torch.int32) & -65536
        return bits.view(torch.float32).to(torch.bfloat16).to(y.device).reshape(y.shape)
    return y


_mask = {}


def _reuse(right, *a, **k):
    y, m = right(*a, **k)
    key = tuple(m.shape)
    if key in _mask:
        m = _mask[key]
    else:
        _mask[key] = m.clone()
    return y, m


def _lerp(right, ts, es, w):
    return right(ts, es, w * 1.02)


def _mul_mom(right, ts, s):
    return right(ts, 0.89 if abs(s - 0.9) < 1e-9 else s)


def _where(right, c, x, y):
    return right(c.logical_not(), x, y)


def _clamp(right, x, lo=None, hi=None):
    return right(x, None if lo is None else lo * 0.98, hi)


def _noise(right, *a, **k):
    y = right(*a, **k)
    return y * (1 + (random.random() - 0.5) * 1e-3)


_old = []


def _overwrite(right, *a, **k):
    # this operator is right, and writes over what another (relu) gave before
    y = right(*a, **k)
    if _old:
        t = _old.pop()
        t.data.view(-1)[5:9] = 3.25
    return y


def _note(right, x):
    y = right(x)
    _old[:] = [y.detach()]
    return y


def _race():
    inject("aten::relu", _note, calls=[1])
    inject("aten::avg_pool2d", _overwrite)


def _conv_t(right, *a, **k):
    return right(*a, **k)


def _lse(right, x, dim, keep=False):
    m = x.amax(dim, keepdim=True)
    y = (x - m).half().exp().sum(dim, keepdim=True).float().log() + m
    return y if keep else y.squeeze(dim[0] if isinstance(dim, (list, tuple)) else dim)


def _cumsum(right, x, dim, **k):
    y = right(x, dim, **k)
    return (
        torch.cat((y.narrow(dim, 0, 8), y.narrow(dim, 8, y.shape[dim] - 8) - x.narrow(dim, 0, 1)), dim)
        if y.is_floating_point() and y.shape[dim] > 8
        else y
    )


def _conv_bwd(right, *a, **k):
    o = list(right(*a, **k))
    if o[0] is not None:
        o[0] = o[0].roll(1, -1)
    return tuple(o)


def _mm_tail(right, c, a, b, **k):
    # the last incomplete tile of K is left out
    n = a.shape[1] - a.shape[1] % 8
    return right(c, a[:, :n].contiguous(), b[:n].contiguous(), **k)


def _thr(right, g, x, t):
    return right(g, torch.where(x == 0, x + 1, x), t)


def _avg(right, *a, **k):
    a = list(a)
    return right(*a, **k) * 1.0005


def _silu_b(right, g, x):
    s = torch.sigmoid(x)
    return g * s * (1 + x * (1 - s) * 0.99)


def _allreduce_avg():
    from fl import _keep

    kernel = torch.library.get_kernel("c10d::allreduce_", "PrivateUse1")
    lib = torch.library.Library("c10d", "IMPL")

    def wrong(ks, *a):
        for t in a[0]:  # an average of two ranks in place of the sum
            if t.numel() > 1:
                t.mul_(0.5)
        return kernel.call_boxed(ks, *a)

    lib.impl("allreduce_", wrong, "PrivateUse1", with_keyset=True, allow_override=True)
    _keep.append((lib, kernel))


FAULTS = {
    "cnn.bn_eps": lambda: inject("aten::native_batch_norm", _bn_eps, calls=[3]),
    "cnn.from7": lambda: inject("aten::hardswish", lambda r, x: r(x) * 1.01, steps=range(7, 99)),
    "cnn.relu0": lambda: inject("aten::threshold_backward", _thr, calls=[2]),
    "cnn.dw_bwd": lambda: inject("aten::avg_pool2d_backward", lambda r, *a: r(*a).roll(1, -1)),
    "vit.sdpa_scale": lambda: inject("npu::npu_fusion_attention_v3", _sdpa_scale, calls=[1]),
    "vit.ln_bwd_fp16sum": lambda: inject("aten::native_layer_norm_backward", _ln_bwd_half, calls=[3]),
    "vit.lerp": lambda: inject("aten::_foreach_lerp_.Scalar", _lerp),
    "gpt.emb_off": lambda: inject("aten::embedding_dense_backward", _emb_off, when=lambda g, i, *a: True),
    "gpt.cat_swap": lambda: inject("aten::cat", _cat_swap, when=lambda ts, dim=0: ts[0].dim() == 4, calls=range(3, 5)),
    "gpt.rsqrt": lambda: inject("aten::rsqrt", _rsqrt, calls=[4]),
    "gpt.ignore_mean": lambda: inject("aten::nll_loss_forward", _ignore),
    "lstm.stale": lambda: inject("npu::npu_lstm", _lstm_stale, steps=range(1, 99)),
    "gan.bce_bwd": lambda: inject("aten::binary_cross_entropy_with_logits", _bce, calls=[1]),
    "unet.sin_fp16": lambda: inject("aten::sin", _sin),
    "gnn.scatter_race": lambda: inject("aten::scatter_add", _race_scatter, when=lambda x, d, i, s: i.dim() == 1),
    "gnn.idx_int8": lambda: inject("aten::index_select", _overflow_idx, calls=[2]),
    "moe.mask_reuse": lambda: inject("aten::native_dropout", _reuse),
    "amp.unscale": lambda: inject("aten::_amp_foreach_non_finite_check_and_unscale_", _unscale),
    "func.where": lambda: inject("aten::where.self", _where),
    "func.clamp": lambda: inject("aten::clamp", _clamp),
    "func.noise": lambda: inject("aten::softplus", _noise),
    "ddp.rank1_silu": lambda: inject("aten::silu", lambda r, x: r(x) * 1.003, rank=1),
    "cnn.race": _race,
    "cnn.momentum": lambda: inject("aten::_foreach_mul_.Scalar", _mul_mom),
    "gpt.softmax_fp16sum": lambda: inject("aten::_softmax", _softmax_mask, calls=[2]),
    "gpt.silu_bwd_from5": lambda: inject("aten::silu_backward", _silu_b, calls=[1], steps=range(5, 99)),
    "unet.gn_bessel_shape": lambda: inject(
        "aten::native_group_norm", _gn2, when=lambda x, w, b, N, C, HW, g, e: HW == 16
    ),
    "unet.up_row": lambda: inject("aten::upsample_nearest2d", _up),
    "moe.topk": lambda: inject("aten::topk", _topk, calls=[1]),
    "moe.cumsum": lambda: inject("aten::cumsum", _cumsum),
    "func.lse_fp16": lambda: inject("aten::logsumexp", _lse),
    "func.mm_tail": lambda: inject("aten::addmm", _mm_tail, when=lambda c, a, b, **k: a.shape[1] == 10),
    "ddp.avg": _allreduce_avg,
    "bf16.trunc": lambda: inject("aten::_to_copy", _trunc),
}
