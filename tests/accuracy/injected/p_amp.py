import os, torch, fl
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from faults import FAULTS

fl.setup(FAULTS)
torch.manual_seed(0)
DT = torch.float16 if os.environ.get("AMP", "fp16") == "fp16" else torch.bfloat16


class B(nn.Module):
    def __init__(s, d):
        super().__init__()
        s.n = nn.LayerNorm(d)
        s.a = nn.Linear(d, 4 * d)
        s.drop = nn.Dropout(0.1)
        s.b = nn.Linear(4 * d, d)

    def forward(s, x):
        return x + s.b(s.drop(F.gelu(s.a(s.n(x)), approximate="tanh")))


class M(nn.Module):
    def __init__(s, d=64):
        super().__init__()
        s.i = nn.Conv1d(6, d, 3, padding=1)
        s.bl = nn.ModuleList([B(d) for _ in range(3)])
        s.o = nn.Linear(d, 6)

    def forward(s, x):
        x = s.i(x.transpose(1, 2)).transpose(1, 2)
        for b in s.bl:
            x = checkpoint(b, x, use_reentrant=False)
        return s.o(x)


dev = torch.device("cuda")
m = M().to(dev)
opt = torch.optim.Adam(m.parameters(), 1e-3, foreach=True)
sc = torch.amp.GradScaler("cuda", enabled=DT is torch.float16, init_scale=2.0**12)
g = torch.Generator().manual_seed(1)
for step in range(5):
    x = torch.randn(4, 12, 6, generator=g).to(dev)
    with torch.autocast("cuda", dtype=DT):
        loss = F.smooth_l1_loss(m(x[:, :-1]), x[:, 1:])
    opt.zero_grad()
    sc.scale(loss).backward()
    sc.unscale_(opt)
    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    sc.step(opt)
    sc.update()
    print(step, loss.item())
