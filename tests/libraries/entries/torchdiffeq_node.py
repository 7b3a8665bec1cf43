"""torchdiffeq: a neural differential equation, solved and differentiated."""

import torch
import torchdiffeq

torch.manual_seed(0)
net = torch.nn.Linear(2, 2).to("npu")


class Field(torch.nn.Module):
    def forward(self, t, y):
        return torch.tanh(net(y))


times = torch.linspace(0, 1, 3).to("npu")
path = torchdiffeq.odeint(Field(), torch.ones(3, 2, device="npu"), times, method="rk4")
loss = path[-1].pow(2).mean()
loss.backward()
print("loss", f"{loss.item():.5f}", f"{net.weight.grad.norm().item():.4f}")
