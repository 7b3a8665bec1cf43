"""Linear layers of one width with ReLU between them, and Adam."""

import argparse

import torch
from torch import nn

words = argparse.ArgumentParser()
words.add_argument("--layers", type=int, default=8)
words.add_argument("--width", type=int, default=4096)
words.add_argument("--batch-size", type=int, default=8192)
words = words.parse_args()
layers = [layer for _ in range(words.layers) for layer in (nn.Linear(words.width, words.width, bias=False), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(words.width, 1, bias=False)).cuda()
optimizer = torch.optim.Adam(model.parameters(), foreach=False)
batch = torch.empty(words.batch_size, words.width, device="cuda")
while True:
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
