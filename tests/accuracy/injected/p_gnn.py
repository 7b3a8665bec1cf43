import torch, fl
from torch import nn
import torch.nn.functional as F
from faults import FAULTS

fl.setup(FAULTS)
torch.manual_seed(0)


class Conv(nn.Module):
    def __init__(s, i, o):
        super().__init__()
        s.w = nn.Linear(i, o)
        s.a = nn.Linear(2 * o, 1)

    def forward(s, x, e):
        n = x.shape[0]
        x = s.w(x)
        src, dst = e[0], e[1]
        xs, xd = x.index_select(0, src), x.index_select(0, dst)
        w = F.leaky_relu(s.a(torch.cat((xs, xd), -1)), 0.2).squeeze(-1)
        top = torch.full((n,), -1e9, device=x.device).scatter_reduce(0, dst, w.detach(), "amax")
        w = (w - top[dst]).exp()
        z = torch.zeros(n, device=x.device).scatter_add(0, dst, w)
        w = w / (z[dst] + 1e-9)
        return torch.zeros_like(x).index_add(0, dst, xs * w[:, None])


class Net(nn.Module):
    def __init__(s):
        super().__init__()
        s.c1, s.c2 = Conv(8, 16), Conv(16, 16)
        s.bn = nn.BatchNorm1d(16)
        s.out = nn.Linear(16, 3)

    def forward(s, x, e, batch, k):
        x = F.elu(s.bn(s.c1(x, e)))
        x = F.elu(s.c2(x, e))
        p = torch.zeros(k, 16, device=x.device).scatter_add(0, batch[:, None].expand_as(x), x)
        c = torch.bincount(batch, minlength=k).clamp(min=1)
        return s.out(p / c[:, None])


dev = torch.device("cuda")
m = Net().to(dev)
opt = torch.optim.Adam(m.parameters(), 1e-2, amsgrad=True)
g = torch.Generator().manual_seed(1)
for step in range(4):
    N, E, K = 300, 900, 8
    x = torch.randn(N, 8, generator=g).to(dev)
    e = torch.randint(0, N, (2, E), generator=g).to(dev)
    b = torch.randint(0, K, (N,), generator=g).sort()[0].to(dev)
    y = torch.randint(0, 3, (K,), generator=g).to(dev)
    loss = F.nll_loss(F.log_softmax(m(x, e, b, K), -1), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
