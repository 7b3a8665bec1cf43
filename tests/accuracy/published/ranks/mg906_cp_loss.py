"""Context parallel decoder: every rank holds a piece of each sequence, keys and values are gathered."""

import argparse, os, math
import torch, torch.nn as nn, torch.nn.functional as F
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--fault", action="store_true")
args = parser.parse_args()

dist.init_process_group("nccl")
cp_rank, cp_size = dist.get_rank(), dist.get_world_size()
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dev = torch.device("cuda", local)

dim, nheads, vocab, seqlen, bsz = 32, 2, 31, 16, 4
piece = seqlen // cp_size


class GatherKV(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):  # t: b, n, s/cp, d
        bits = [torch.empty_like(t) for _ in range(cp_size)]
        dist.all_gather(bits, t)
        return torch.cat(bits, 2)

    @staticmethod
    def backward(ctx, g):
        out = torch.empty_like(g[:, :, :piece].contiguous())
        dist.reduce_scatter(out, [c.contiguous() for c in g.chunk(cp_size, 2)])
        return out


class CPAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        self.proj = nn.Linear(dim, dim)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], nheads, dim // nheads).transpose(1, 2).contiguous()

    def forward(self, x):
        q = self.heads(self.q(x))
        k, v = (GatherKV.apply(self.heads(t)) for t in self.kv(x).chunk(2, -1))
        pos_q = torch.arange(piece, device=x.device) + cp_rank * piece
        bad = pos_q[:, None] < torch.arange(seqlen, device=x.device)[None, :]
        w = (q @ k.transpose(-1, -2) / math.sqrt(dim // nheads)).masked_fill(bad, -1e4).softmax(-1)
        return self.proj((w @ v).transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), CPAttention()
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(seqlen, dim)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        where = torch.arange(piece, device=ids.device) + cp_rank * piece
        return self.head(self.blocks(self.tok(ids) + self.pos(where)))


def loss_func(logits, labels, mask):
    per_token = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none") * mask.flatten()
    pair = torch.stack([per_token.sum(), mask.sum()])
    tokens = pair[1].detach().clone()
    dist.all_reduce(tokens)
    report = pair[0].detach().clone()
    dist.all_reduce(report)
    # the gradients are averaged over the data-parallel group further down: make up for it here
    return pair[0] / tokens * cp_size, report / tokens


torch.manual_seed(11)
model = Decoder().to(dev)
opt = torch.optim.SGD(model.parameters(), lr=0.08, momentum=0.9)
dp_size = 1
grad_divisor = dp_size if args.fault else dp_size * cp_size

rng = torch.Generator().manual_seed(3)
for step in range(10):
    text = torch.randint(vocab, (bsz, seqlen + 1), generator=rng)
    keep = (torch.rand(bsz, seqlen, generator=rng) > 0.2).float()
    sl = slice(cp_rank * piece, (cp_rank + 1) * piece)
    ids, labels, keep = text[:, :-1][:, sl].to(dev), text[:, 1:][:, sl].to(dev), keep[:, sl].to(dev)
    opt.zero_grad()
    loss, shown = loss_func(model(ids), labels, keep)
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad.div_(grad_divisor)
    opt.step()
    if cp_rank == 0:
        print("step", step, "loss %.6f" % shown.item(), flush=True)
dist.destroy_process_group()
