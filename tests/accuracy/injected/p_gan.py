import torch, fl
from torch import nn
import torch.nn.functional as F
from faults import FAULTS

fl.setup(FAULTS)
torch.manual_seed(0)
G = nn.Sequential(
    nn.ConvTranspose2d(8, 16, 4),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.ConvTranspose2d(16, 8, 4, 2, 1),
    nn.InstanceNorm2d(8),
    nn.LeakyReLU(0.2),
    nn.ConvTranspose2d(8, 1, 4, 2, 1),
    nn.Tanh(),
)
D = nn.Sequential(
    nn.Conv2d(1, 8, 4, 2, 1),
    nn.LeakyReLU(0.2),
    nn.utils.parametrizations.spectral_norm(nn.Conv2d(8, 16, 4, 2, 1)),
    nn.LeakyReLU(0.2),
    nn.Flatten(),
    nn.Linear(256, 1),
)
dev = torch.device("cuda")
G.to(dev)
D.to(dev)
og = torch.optim.Adam(G.parameters(), 2e-4, betas=(0.5, 0.999))
od = torch.optim.Adam(D.parameters(), 2e-4, betas=(0.5, 0.999))
crit = nn.BCEWithLogitsLoss()
g = torch.Generator().manual_seed(1)
for step in range(4):
    x = torch.randn(4, 1, 16, 16, generator=g).to(dev)
    z = torch.randn(4, 8, 1, 1, generator=g).to(dev)
    fake = G(z)
    ld = crit(D(x), torch.ones(4, 1, device=dev)) + crit(D(fake.detach()), torch.zeros(4, 1, device=dev))
    od.zero_grad()
    ld.backward()
    od.step()
    lg = crit(D(fake), torch.ones(4, 1, device=dev))
    og.zero_grad()
    lg.backward()
    og.step()
    print(step, ld.item(), lg.item())
