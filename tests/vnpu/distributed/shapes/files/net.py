import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1, bias=False)
        nn.init.zeros_(self.fc.weight)

    def forward(self, x):
        return self.fc(x).squeeze(1)

    @torch.no_grad()
    def count(self, batches):
        return sum(len(self(x.cuda())) for _, x, _ in batches)
