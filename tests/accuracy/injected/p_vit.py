import torch, fl
from torch import nn
import torch.nn.functional as F
from faults import FAULTS

fl.setup(FAULTS)
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(s, d, h):
        super().__init__()
        s.h = h
        s.n1 = nn.LayerNorm(d)
        s.qkv = nn.Linear(d, 3 * d)
        s.proj = nn.Linear(d, d)
        s.n2 = nn.LayerNorm(d)
        s.fc1 = nn.Linear(d, 4 * d)
        s.act = nn.GELU()
        s.fc2 = nn.Linear(4 * d, d)
        s.ls = nn.Parameter(torch.full((d,), 0.3))

    def forward(s, x):
        b, n, d = x.shape
        q, k, v = s.qkv(s.n1(x)).reshape(b, n, 3, s.h, d // s.h).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = x + s.ls * s.proj(a)
        return x + s.fc2(s.act(s.fc1(s.n2(x))))


class ViT(nn.Module):
    def __init__(s, d=64):
        super().__init__()
        s.patch = nn.Conv2d(3, d, 4, 4)
        s.cls = nn.Parameter(torch.zeros(1, 1, d))
        s.pos = nn.Parameter(torch.randn(1, 65, d) * 0.02)
        s.blocks = nn.ModuleList([Block(d, 4) for _ in range(3)])
        s.norm = nn.LayerNorm(d)
        s.head = nn.Linear(d, 10)

    def forward(s, x):
        x = s.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([s.cls.expand(x.shape[0], -1, -1), x], 1) + s.pos
        for b in s.blocks:
            x = b(x)
        return s.head(s.norm(x)[:, 0])


dev = torch.device("cuda")
m = ViT().to(dev)
opt = torch.optim.AdamW(m.parameters(), lr=1e-3, weight_decay=0.05)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
g = torch.Generator().manual_seed(1)
for step in range(5):
    x = torch.randn(4, 3, 32, 32, generator=g)
    y = torch.randint(0, 10, (4,), generator=g)
    loss = F.cross_entropy(m(x.to(dev)), y.to(dev))
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    print(step, loss.item())
