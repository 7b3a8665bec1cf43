# cause: kernel.vector
import torch
from torch import nn

words = nn.Embedding(100, 16).cuda()
tokens = torch.randint(90, 140, (4, 12), device="cuda")
loss = words(tokens).pow(2).mean()
loss.backward()
print(loss.item())
