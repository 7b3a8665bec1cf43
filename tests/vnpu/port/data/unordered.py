import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x)) + x
        return self.head(x)

    def parameters_to_train(self):
        return set(self.parameters()) - set(self.layers[0].parameters())


net = Net().cuda()
optimizer = torch.optim.AdamW(list(net.parameters_to_train()), lr=1e-2)
for step in range(6):
    loss = net(torch.randn(16, 8).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
