import torch, fl
from torch import nn
import torch.nn.functional as F
from faults import FAULTS

fl.setup(FAULTS)
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(s, i, o, stride):
        super().__init__()
        s.c1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        s.b1 = nn.BatchNorm2d(o)
        s.c2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        s.b2 = nn.BatchNorm2d(o)
        s.short = nn.Conv2d(i, o, 1, stride, bias=False) if i != o else nn.Identity()

    def forward(s, x):
        return F.relu(s.b2(s.c2(F.relu(s.b1(s.c1(x))))) + s.short(x))


class Net(nn.Module):
    def __init__(s):
        super().__init__()
        s.stem = nn.Conv2d(3, 8, 3, 1, 1)
        s.l1 = Block(8, 8, 1)
        s.l2 = Block(8, 16, 2)
        s.pool = nn.AvgPool2d(2)
        s.dw = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        s.act = nn.Hardswish()
        s.fc = nn.Linear(16, 10)

    def forward(s, x):
        x = s.act(s.dw(s.pool(s.l2(s.l1(s.stem(x))))))
        return s.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


dev = torch.device("cuda")
m = Net().to(dev)
opt = torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
g = torch.Generator().manual_seed(1)
for step in range(9):
    x = torch.randn(8, 3, 16, 16, generator=g)
    y = torch.randint(0, 10, (8,), generator=g)
    loss = F.cross_entropy(m(x.to(dev)), y.to(dev), label_smoothing=0.1)
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    opt.step()
    print(step, loss.item())
