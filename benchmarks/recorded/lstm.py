"""A language model of two LSTM layers."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(200, 64)
        self.lstm = nn.LSTM(64, 128, 2, batch_first=True)
        self.head = nn.Linear(128, 200)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


torch.manual_seed(0)
net = Model().cuda()
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
for _ in range(40):
    tokens = torch.randint(0, 200, (8, 33)).cuda()
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
