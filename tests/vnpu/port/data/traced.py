import torch
from torch import nn

net = nn.Sequential(
    nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(144, 2)
).cuda()
torch.jit.trace(net, torch.ones(1, 3, 8, 8).cuda())  # as SummaryWriter.add_graph does: traced twice, and compared
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(8):
    loss = net(torch.randn(4, 3, 8, 8).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
