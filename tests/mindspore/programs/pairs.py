"""Networks twice: in torch and in MindSpore, with their parameters in the same order. MindSpore's are made of the layers
of mint or, where LAYERS=nn, of nn and ops, which its CPU backend has kernels for."""

from __future__ import annotations

import importlib
import math
import os

import mindspore as ms
import numpy as np
import torch

F = torch.nn.functional
M = importlib.import_module(f"layers_{os.environ.get('LAYERS', 'mint')}")


class LeNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = torch.nn.Conv2d(1, 6, 5, padding=2), torch.nn.Conv2d(6, 16, 5)
        self.f1, self.f2, self.f3 = (torch.nn.Linear(400, 120), torch.nn.Linear(120, 84), torch.nn.Linear(84, 10))

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2).flatten(1)
        return self.f3(F.relu(self.f2(F.relu(self.f1(x)))))


class MsLeNet(ms.nn.Cell):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = M.Conv2d(1, 6, 5, padding=2), M.Conv2d(6, 16, 5)
        self.f1, self.f2, self.f3 = M.Linear(400, 120), M.Linear(120, 84), M.Linear(84, 10)

    def construct(self, x):
        x = M.max_pool2d(M.relu(self.c1(x)), 2)
        x = M.flatten(M.max_pool2d(M.relu(self.c2(x)), 2), 1)
        return self.f3(M.relu(self.f2(M.relu(self.f1(x)))))


class Block(torch.nn.Module):
    def __init__(self, i, o, step):
        super().__init__()
        self.c1, self.b1 = torch.nn.Conv2d(i, o, 3, step, 1, bias=False), torch.nn.BatchNorm2d(o)
        self.c2, self.b2 = torch.nn.Conv2d(o, o, 3, 1, 1, bias=False), torch.nn.BatchNorm2d(o)
        self.short = step != 1
        if self.short:
            self.c3, self.b3 = torch.nn.Conv2d(i, o, 1, step, bias=False), torch.nn.BatchNorm2d(o)

    def forward(self, x):
        y = self.b2(self.c2(F.relu(self.b1(self.c1(x)))))
        return F.relu(y + (self.b3(self.c3(x)) if self.short else x))


class MsBlock(ms.nn.Cell):
    def __init__(self, i, o, step):
        super().__init__()
        self.c1, self.b1 = M.Conv2d(i, o, 3, step, 1, bias=False), M.BatchNorm2d(o)
        self.c2, self.b2 = M.Conv2d(o, o, 3, 1, 1, bias=False), M.BatchNorm2d(o)
        self.short = step != 1
        if self.short:
            self.c3, self.b3 = M.Conv2d(i, o, 1, step, bias=False), M.BatchNorm2d(o)

    def construct(self, x):
        y = self.b2(self.c2(M.relu(self.b1(self.c1(x)))))
        if self.short:
            return M.relu(y + self.b3(self.c3(x)))
        return M.relu(y + x)


WIDTHS = (
    (64, 64, 1),
    (64, 64, 1),
    (64, 128, 2),
    (128, 128, 1),
    (128, 256, 2),
    (256, 256, 1),
    (256, 512, 2),
    (512, 512, 1),
)


class ResNet18(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.b = torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(64)
        self.blocks = torch.nn.Sequential(*(Block(*each) for each in WIDTHS))
        self.f = torch.nn.Linear(512, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.b(self.c(x))), 3, 2, 1)
        return self.f(self.blocks(x).mean((2, 3)))


class MsResNet18(ms.nn.Cell):
    def __init__(self):
        super().__init__()
        self.c, self.b = M.Conv2d(3, 64, 7, 2, 3, bias=False), M.BatchNorm2d(64)
        self.blocks = ms.nn.SequentialCell([MsBlock(*each) for each in WIDTHS])
        self.f = M.Linear(512, 10)

    def construct(self, x):
        x = M.max_pool2d_padded(M.relu(self.b(self.c(x))))
        return self.f(M.mean(self.blocks(x), (2, 3)))


class Layer(torch.nn.Module):
    def __init__(self, d, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.n1, self.qkv, self.o = (torch.nn.LayerNorm(d, M.EPSILON), torch.nn.Linear(d, 3 * d), torch.nn.Linear(d, d))
        self.n2, self.up, self.down = (
            torch.nn.LayerNorm(d, M.EPSILON),
            torch.nn.Linear(d, 4 * d),
            torch.nn.Linear(4 * d, d),
        )

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.n1(x)).split(d, 2))
        score = q @ k.transpose(-1, -2) / math.sqrt(d // self.heads)
        if self.causal:
            score = score.masked_fill(mask, -1e4)
        y = (F.softmax(score, -1) @ v).transpose(1, 2).reshape(b, t, d)
        x = x + self.o(y)
        return x + self.down(F.gelu(self.up(self.n2(x))))


class MsLayer(ms.nn.Cell):
    def __init__(self, d, heads, causal):
        super().__init__()
        self.heads, self.causal, self.scale = heads, causal, math.sqrt(d // heads)
        self.n1, self.qkv, self.o = M.LayerNorm(d), M.Linear(d, 3 * d), M.Linear(d, d)
        self.n2, self.up, self.down = M.LayerNorm(d), M.Linear(d, 4 * d), M.Linear(4 * d, d)

    def heads_of(self, y, b, t):
        return M.transpose(M.reshape(y, (b, t, self.heads, -1)), 1, 2)

    def construct(self, x, mask):
        b, t, d = x.shape
        q, k, v = M.split(self.qkv(self.n1(x)), d, 2)
        q, k, v = self.heads_of(q, b, t), self.heads_of(k, b, t), self.heads_of(v, b, t)
        score = M.matmul(q, M.transpose(k, 2, 3)) / self.scale
        if self.causal:
            score = M.masked_fill(score, mask, -1e4)
        y = M.reshape(M.transpose(M.matmul(M.softmax(score, -1), v), 1, 2), (b, t, d))
        x = x + self.o(y)
        return x + self.down(M.gelu(self.up(self.n2(x))))


WORDS, LENGTH, WIDTH, HEADS = 512, 32, 128, 4


class Transformer(torch.nn.Module):
    """BERT's encoder with a head on the first word, or GPT's decoder, whose head is the embedding."""

    def __init__(self, causal):
        super().__init__()
        self.causal = causal
        self.w, self.p = torch.nn.Embedding(WORDS, WIDTH), torch.nn.Embedding(LENGTH, WIDTH)
        self.a, self.b = (Layer(WIDTH, HEADS, causal) for _ in range(2))
        self.n = torch.nn.LayerNorm(WIDTH, M.EPSILON)
        if not causal:
            self.head = torch.nn.Linear(WIDTH, 2)
        self.mask = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1)

    def forward(self, x):
        x = self.w(x) + self.p(torch.arange(LENGTH))
        x = self.n(self.b(self.a(x, self.mask), self.mask))
        return F.linear(x.reshape(-1, WIDTH), self.w.weight) if self.causal else self.head(x[:, 0])


class MsTransformer(ms.nn.Cell):
    def __init__(self, causal):
        super().__init__()
        self.causal = causal
        self.w, self.p = M.Embedding(WORDS, WIDTH), M.Embedding(LENGTH, WIDTH)
        self.a, self.b = MsLayer(WIDTH, HEADS, causal), MsLayer(WIDTH, HEADS, causal)
        self.n = M.LayerNorm(WIDTH)
        if not causal:
            self.head = M.Linear(WIDTH, 2)
        self.mask = ms.Tensor(np.triu(np.ones((LENGTH, LENGTH), bool), 1))
        self.places = ms.Tensor(np.arange(LENGTH))

    def construct(self, x):
        x = self.w(x) + self.p(self.places)
        x = self.n(self.b(self.a(x, self.mask), self.mask))
        if self.causal:
            return M.linear(M.reshape(x, (-1, WIDTH)), M.table(self.w))
        return self.head(x[:, 0])


def made(name):
    """The two networks with the same parameters, an input and labels."""
    torch.manual_seed(1)
    pairs = {
        "lenet": lambda: (LeNet(), MsLeNet()),
        "resnet18": lambda: (ResNet18(), MsResNet18()),
        "bert": lambda: (Transformer(False), MsTransformer(False)),
        "gpt": lambda: (Transformer(True), MsTransformer(True)),
    }
    theirs, ours = pairs[name]()
    state, parameters = list(theirs.named_parameters()), ours.trainable_params()
    assert [tuple(value.shape) for _, value in state] == [tuple(each.shape) for each in parameters]
    for (_, value), parameter in zip(state, parameters, strict=True):
        parameter.set_data(ms.Tensor(value.detach().numpy().copy()))
    if name in ("lenet", "resnet18"):
        x = torch.randn((32, 1, 28, 28) if name == "lenet" else (4, 3, 64, 64))
        y = torch.randint(0, 10, (len(x),))
    else:
        x = torch.randint(0, WORDS, (8, LENGTH))
        y = torch.randint(0, 2, (8,)) if name == "bert" else torch.randint(0, WORDS, (8 * LENGTH,))
    return theirs, ours, x, y
