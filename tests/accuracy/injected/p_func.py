import torch, fl
from torch import nn
import torch.nn.functional as F
from faults import FAULTS

fl.setup(FAULTS)
torch.manual_seed(0)


class Huberize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, c):
        ctx.save_for_backward(x)
        ctx.c = c
        return torch.where(x.abs() < c, 0.5 * x * x, c * (x.abs() - 0.5 * c))

    @staticmethod
    def backward(ctx, gy):
        (x,) = ctx.saved_tensors
        return gy * torch.clamp(x, -ctx.c, ctx.c), None


class M(nn.Module):
    def __init__(s):
        super().__init__()
        s.l1, s.l2, s.l3 = nn.Linear(10, 32), nn.Linear(32, 32), nn.Linear(32, 4)
        s.n = nn.LayerNorm(32)
        s.pr = nn.LeakyReLU(0.1)

    def forward(s, x):
        x = s.pr(s.l1(x))
        y = torch.einsum("bi,ij->bj", x, s.l2.weight) + s.l2.bias
        x = s.n(F.softplus(y)) + torch.logsumexp(x.view(-1, 4, 8), 1).repeat(1, 4)
        return s.l3(F.normalize(x, dim=-1) * 4)


dev = torch.device("cuda")
m = M().to(dev)
opt = torch.optim.Adagrad(m.parameters(), 1e-2)
g = torch.Generator().manual_seed(1)
W = torch.randn(10, 4, generator=g).to(dev)
for step in range(9):
    x = torch.randn(16, 10, generator=g).to(dev)
    loss = Huberize.apply(m(x) - x @ W, 1.0).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
