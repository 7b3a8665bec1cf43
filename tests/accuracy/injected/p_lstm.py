import torch, fl
from torch import nn
import torch.nn.functional as F
from faults import FAULTS

fl.setup(FAULTS)
torch.manual_seed(0)


class M(nn.Module):
    def __init__(s):
        super().__init__()
        s.e = nn.Embedding(30, 16, padding_idx=0)
        s.l1 = nn.LSTM(16, 24, num_layers=2, batch_first=True)
        s.gru = nn.GRU(24, 12, batch_first=True)
        s.fc = nn.Linear(12, 30)

    def forward(s, x):
        y, _ = s.l1(s.e(x))
        y, _ = s.gru(y)
        return s.fc(y)


dev = torch.device("cuda")
m = M().to(dev)
opt = torch.optim.RMSprop(m.parameters(), lr=1e-3, momentum=0.5)
g = torch.Generator().manual_seed(1)
for step in range(9):
    t = torch.randint(0, 30, (6, 10), generator=g).to(dev)
    loss = F.cross_entropy(m(t[:, :-1]).flatten(0, 1), t[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
