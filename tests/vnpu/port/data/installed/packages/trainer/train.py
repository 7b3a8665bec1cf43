import torch
from trainer.device import choose
torch.manual_seed(0)
net = torch.nn.Linear(8, 1).to(choose())
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(8):
    loss = net(torch.randn(4, 8).to(choose())).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    print(loss.item())
