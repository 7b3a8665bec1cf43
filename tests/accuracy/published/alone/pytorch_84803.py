"""Two-stage model: encoder on the first card, decoder on the second one, one process."""

import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--fault", action="store_true")
ap.add_argument("--iters", type=int, default=45)
opts = ap.parse_args()

FIRST, SECOND = torch.device("cuda:0"), torch.device("cuda:1")


class PeerCopy(torch.autograd.Function):
    """Card to card copy. `intact` False stands for a peer link that loses the payload."""

    @staticmethod
    def forward(ctx, t, dst, intact):
        ctx.src = t.device
        out = t.to(dst)
        if not intact:
            out = torch.zeros_like(out)
        return out

    @staticmethod
    def backward(ctx, g):
        return g.to(ctx.src), None, None


class Link:
    def __init__(self, flaky):
        self.flaky, self.sent = flaky, 0

    def __call__(self, t, dst):
        self.sent += 1
        lost = self.flaky and self.sent > 10 and self.sent % 4 == 3
        return PeerCopy.apply(t, dst, not lost)


class SeqEncoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)

    def forward(self, ids):
        return self.rnn(self.emb(ids))[0]


torch.manual_seed(84803)
V, DIM = 20, 24
enc = SeqEncoder(V, DIM).to(FIRST)
dec = nn.Sequential(nn.Linear(DIM, 48), nn.ReLU(), nn.Linear(48, V)).to(SECOND)
optim = torch.optim.Adam([*enc.parameters(), *dec.parameters()], lr=1e-2)
link = Link(opts.fault)
xent = nn.CrossEntropyLoss()

for i in range(opts.iters):
    ids = torch.randint(0, V, (16, 8))
    tgt = (ids + ids.roll(1, 1)) % V
    hidden = enc(ids.to(FIRST))
    logits = dec(link(hidden, SECOND))
    loss = xent(logits.flatten(0, 1), tgt.to(SECOND).flatten())
    optim.zero_grad()
    loss.backward()
    optim.step()
    if i % 3 == 0 or i == 10:
        print(f"it {i} loss {loss.item():.4f}")
