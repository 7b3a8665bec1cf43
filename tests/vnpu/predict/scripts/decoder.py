"""A decoder (GPT's form) that trains in bfloat16 on a GPU: --parallel splits each layer over the ranks that there are."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

words = argparse.ArgumentParser()
words.add_argument("--layers", type=int, default=32)
words.add_argument("--width", type=int, default=4096)
words.add_argument("--heads", type=int, default=32)
words.add_argument("--vocabulary", type=int, default=32000)
words.add_argument("--length", type=int, default=2048)
words.add_argument("--batch-size", type=int, default=1)
words.add_argument("--weights", choices=("device", "meta", "cpu"), default="device")
words.add_argument("--sgd", action="store_true")
words.add_argument("--foreach", action="store_true")
words.add_argument("--parallel", action="store_true")
words.add_argument("--data-parallel", action="store_true")
words = words.parse_args()
ranks = int(os.environ.get("WORLD_SIZE", 1))
split = ranks if words.parallel else 1
if ranks > 1:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")


class Copied(torch.autograd.Function):
    """The same on each rank; gradients are summed."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        if split > 1:
            dist.all_reduce(gradient)
        return gradient


class Summed(torch.autograd.Function):
    """Parts of a sum, one on each rank, to the sum."""

    @staticmethod
    def forward(ctx, x):
        if split > 1:
            dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads // split
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.into, self.out = (
            nn.Linear(width, 3 * width // split, bias=False),
            nn.Linear(width // split, width, bias=False),
        )
        self.up, self.down = (
            nn.Linear(width, 4 * width // split, bias=False),
            nn.Linear(4 * width // split, width, bias=False),
        )

    def forward(self, x):
        batch, length, _ = x.shape
        parts = self.into(Copied.apply(self.norm1(x))).chunk(3, dim=-1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + Summed.apply(self.out(seen.transpose(1, 2).reshape(batch, length, -1)))
        inner = functional.gelu(self.up(Copied.apply(self.norm2(x))), approximate="tanh")
        return x + Summed.apply(self.down(inner))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(words.vocabulary, words.width)
        self.places = nn.Embedding(words.length, words.width)
        self.blocks = nn.ModuleList(Block(words.width, words.heads) for _ in range(words.layers))
        self.norm = nn.LayerNorm(words.width)
        self.head = nn.Linear(words.width, words.vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


if words.weights == "cpu":
    model = Decoder().to("cuda", torch.bfloat16)
else:
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda" if words.weights == "device" else "meta"):
        model = Decoder()
    model = model.to_empty(device="cuda")
if words.data_parallel and ranks > 1:
    model = nn.parallel.DistributedDataParallel(model)
if words.sgd:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
else:
    optimizer = torch.optim.AdamW(model.parameters(), foreach=words.foreach)
while True:
    text = torch.randint(words.vocabulary, (words.batch_size, words.length + 1)).cuda()
    optimizer.zero_grad()
    logits = model(text[:, :-1])
    functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()).backward()
    optimizer.step()
