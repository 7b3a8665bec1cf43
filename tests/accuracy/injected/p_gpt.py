import torch, fl
from torch import nn
import torch.nn.functional as F
from faults import FAULTS

fl.setup(FAULTS)
torch.manual_seed(0)


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


class RMSNorm(nn.Module):
    def __init__(s, d):
        super().__init__()
        s.w = nn.Parameter(torch.ones(d))

    def forward(s, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * s.w


class Block(nn.Module):
    def __init__(s, d, h):
        super().__init__()
        s.h = h
        s.n1 = RMSNorm(d)
        s.q = nn.Linear(d, d, bias=False)
        s.k = nn.Linear(d, d, bias=False)
        s.v = nn.Linear(d, d, bias=False)
        s.o = nn.Linear(d, d, bias=False)
        s.n2 = RMSNorm(d)
        s.gate = nn.Linear(d, 2 * d, bias=False)
        s.up = nn.Linear(d, 2 * d, bias=False)
        s.down = nn.Linear(2 * d, d, bias=False)

    def forward(s, x, cos, sin, mask):
        b, n, d = x.shape
        y = s.n1(x)
        q, k, v = (p(y).view(b, n, s.h, -1).transpose(1, 2) for p in (s.q, s.k, s.v))
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        w = (q @ k.transpose(-1, -2)) * (d // s.h) ** -0.5
        w = w.masked_fill(mask, float("-inf")).softmax(-1)
        x = x + s.o((w @ v).transpose(1, 2).reshape(b, n, d))
        y = s.n2(x)
        return x + s.down(F.silu(s.gate(y)) * s.up(y))


class GPT(nn.Module):
    def __init__(s, V=97, d=48, h=4, L=3):
        super().__init__()
        s.emb = nn.Embedding(V, d)
        s.blocks = nn.ModuleList([Block(d, h) for _ in range(L)])
        s.norm = RMSNorm(d)
        s.head = nn.Linear(d, V, bias=False)
        s.head.weight = s.emb.weight
        inv = 1.0 / 10000 ** (torch.arange(0, d // h, 2).float() / (d // h))
        s.register_buffer("inv", inv, persistent=False)

    def forward(s, t):
        n = t.shape[1]
        pos = torch.arange(n, device=t.device, dtype=torch.float32)
        f = torch.outer(pos, s.inv)
        f = torch.cat((f, f), -1)
        cos, sin = f.cos(), f.sin()
        mask = torch.ones(n, n, dtype=torch.bool, device=t.device).triu(1)
        x = s.emb(t)
        for b in s.blocks:
            x = b(x, cos, sin, mask)
        return s.head(s.norm(x))


dev = torch.device("cuda")
m = GPT().to(dev)
opt = torch.optim.AdamW(m.parameters(), lr=3e-3, betas=(0.9, 0.95))
g = torch.Generator().manual_seed(1)
for step in range(9):
    t = torch.randint(0, 97, (4, 17), generator=g)
    x, y = t[:, :-1].to(dev), t[:, 1:].clone().to(dev)
    y[:, -3:] = -100
    loss = F.cross_entropy(m(x).view(-1, 97), y.reshape(-1), ignore_index=-100)
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    opt.step()
    print(step, loss.item())
