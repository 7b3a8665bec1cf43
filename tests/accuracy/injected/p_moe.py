import torch, fl
from torch import nn
import torch.nn.functional as F
from faults import FAULTS

fl.setup(FAULTS)
torch.manual_seed(0)


class MoE(nn.Module):
    def __init__(s, d, n=4, k=2):
        super().__init__()
        s.n, s.k = n, k
        s.gate = nn.Linear(d, n, bias=False)
        s.ex = nn.ModuleList([nn.Sequential(nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d)) for _ in range(n)])

    def forward(s, x):
        b, t, d = x.shape
        x = x.reshape(-1, d)
        p = s.gate(x).softmax(-1)
        w, i = p.topk(s.k, -1)
        w = w / w.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for e, f in enumerate(s.ex):
            tok, slot = torch.where(i == e)
            out.index_add_(0, tok, f(x[tok]) * w[tok, slot, None])
        load = F.one_hot(i, s.n).float().sum((0, 1)) / i.numel()
        return out.view(b, t, d), s.n * (load * p.mean(0)).sum()


class M(nn.Module):
    def __init__(s, d=32):
        super().__init__()
        s.e = nn.Embedding(50, d)
        s.n1, s.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        s.m1, s.m2 = MoE(d), MoE(d)
        s.drop = nn.Dropout(0.1)
        s.h = nn.Linear(d, 50)

    def forward(s, t):
        x = s.drop(s.e(t))
        y, a = s.m1(s.n1(x))
        x = x + s.drop(y)
        y, c = s.m2(s.n2(x))
        x = x + s.drop(y)
        return s.h(x.cumsum(1) / torch.arange(1, t.shape[1] + 1, device=t.device)[None, :, None]), a + c


dev = torch.device("cuda")
m = M().to(dev)
opt = torch.optim.AdamW(m.parameters(), 1e-3, fused=True)
g = torch.Generator().manual_seed(1)
for step in range(4):
    t = torch.randint(0, 50, (4, 13), generator=g).to(dev)
    o, aux = m(t[:, :-1])
    loss = F.cross_entropy(o.flatten(0, 1), t[:, 1:].flatten()) + 0.01 * aux
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
