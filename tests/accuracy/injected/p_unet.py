import math, torch, fl
from torch import nn
import torch.nn.functional as F
from faults import FAULTS

fl.setup(FAULTS)
torch.manual_seed(0)


class R(nn.Module):
    def __init__(s, i, o):
        super().__init__()
        s.n = nn.GroupNorm(4, i)
        s.c = nn.Conv2d(i, o, 3, padding=1)
        s.t = nn.Linear(32, o)
        s.n2 = nn.GroupNorm(4, o)
        s.c2 = nn.Conv2d(o, o, 3, padding=1)
        s.sk = nn.Conv2d(i, o, 1)

    def forward(s, x, t):
        h = s.c(F.silu(s.n(x))) + s.t(F.silu(t))[:, :, None, None]
        return s.c2(F.silu(s.n2(h))) + s.sk(x)


def temb(t, d=32):
    f = torch.exp(-math.log(10000) * torch.arange(d // 2, device=t.device) / (d // 2))
    a = t[:, None].float() * f[None]
    return torch.cat((a.sin(), a.cos()), -1)


class U(nn.Module):
    def __init__(s):
        super().__init__()
        s.i = nn.Conv2d(3, 8, 3, padding=1)
        s.d1 = R(8, 16)
        s.d2 = R(16, 16)
        s.mid = R(16, 16)
        s.u1 = R(32, 16)
        s.u2 = R(32, 8)
        s.o = nn.Conv2d(8, 3, 3, padding=1)

    def forward(s, x, t):
        t = temb(t)
        h1 = s.d1(s.i(x), t)
        h2 = s.d2(F.avg_pool2d(h1, 2), t)
        m = s.mid(F.max_pool2d(h2, 2), t)
        m = s.u1(torch.cat((F.interpolate(m, scale_factor=2, mode="nearest"), h2), 1), t)
        m = s.u2(torch.cat((F.interpolate(m, scale_factor=2, mode="bilinear"), h1), 1), t)
        return s.o(m)


dev = torch.device("cuda")
m = U().to(dev)
opt = torch.optim.Adam(m.parameters(), 1e-3)
ab = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0).to(dev)
g = torch.Generator().manual_seed(1)
for step in range(4):
    x = torch.randn(2, 3, 16, 16, generator=g).to(dev)
    n = torch.randn(2, 3, 16, 16, generator=g).to(dev)
    t = torch.randint(0, 100, (2,), generator=g).to(dev)
    a = ab[t][:, None, None, None]
    loss = F.mse_loss(m(a.sqrt() * x + (1 - a).sqrt() * n, t), n)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
