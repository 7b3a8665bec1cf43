"""Train a small GPT on the characters of a text, on one CUDA GPU.

Without --data the text is the Zen of Python and other words that every installation of Python has.
"""

import argparse
import codecs
import contextlib
import io
import math
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser(description="Character GPT on CUDA")
parser.add_argument("--data", default="", metavar="FILE", help="text to train on (default: texts of Python itself)")
parser.add_argument("--steps", default=300, type=int, metavar="N", help="training steps (default: 300)")
parser.add_argument("-b", "--batch-size", default=16, type=int, metavar="N", help="sequences per step (default: 16)")
parser.add_argument("--block", default=64, type=int, metavar="N", help="context length (default: 64)")
parser.add_argument("--layers", default=2, type=int, metavar="N", help="transformer blocks (default: 2)")
parser.add_argument("--heads", default=4, type=int, metavar="N", help="attention heads (default: 4)")
parser.add_argument("--width", default=128, type=int, metavar="N", help="embedding width (default: 128)")
parser.add_argument("--lr", default=1e-3, type=float, metavar="LR", help="peak learning rate (default: 0.001)")
parser.add_argument("--warmup", default=20, type=int, metavar="N", help="warm-up steps (default: 20)")
parser.add_argument("--accumulate", default=1, type=int, metavar="N", help="batches per step (default: 1)")
parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
parser.add_argument("--device", default="cuda", help="cuda, cuda:1, cpu (default: cuda)")
parser.add_argument("--checkpoint", default="", metavar="PATH", help="save the model here at the end")
parser.add_argument("--seed", default=1, type=int)


class Attention(nn.Module):
    """Causal self-attention; input and output (B, T, C)."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, width))


class Block(nn.Module):
    """Attention and a feed-forward network, each after a layer norm."""

    def __init__(self, width, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    """Token ids (B, T) to logits (B, T, vocabulary); the output layer shares the embedding's weight."""

    def __init__(self, vocabulary, block, layers, heads, width):
        super().__init__()
        self.block = block
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(block, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.apply(self.init)

    @staticmethod
    def init(module):
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))

    @torch.no_grad()
    def generate(self, ids, count):
        for _ in range(count):
            logits = self(ids[:, -self.block :])[:, -1]
            ids = torch.cat([ids, torch.multinomial(F.softmax(logits.float(), dim=-1), 1)], dim=1)
        return ids


def load_text(path):
    if path:
        with open(path, encoding="utf-8") as file:
            return file.read()
    with contextlib.redirect_stdout(io.StringIO()):
        import this
    return codecs.decode(this.s, "rot13") + str(copyright) + 40 * str(codecs.__doc__)


def get_batch(data, args):
    starts = torch.randint(len(data) - args.block - 1, (args.batch_size,))
    x = torch.stack([data[i : i + args.block] for i in starts])
    y = torch.stack([data[i + 1 : i + 1 + args.block] for i in starts])
    if args.device.startswith("cuda"):
        # pinned memory, so that the copy runs beside the computation
        return x.pin_memory().to(args.device, non_blocking=True), y.pin_memory().to(args.device, non_blocking=True)
    return x.to(args.device), y.to(args.device)


def learning_rate(step, args):
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    done = (step - args.warmup) / max(1, args.steps - args.warmup)
    return args.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def main():
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.cuda.manual_seed_all(args.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True

    text = load_text(args.data)
    characters = sorted(set(text))
    data = torch.tensor([characters.index(c) for c in text])

    model = GPT(len(characters), args.block, args.layers, args.heads, args.width).to(args.device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters, {len(data)} characters")
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    dtype = getattr(torch, args.dtype)
    device_type = "cuda" if "cuda" in args.device else "cpu"
    autocast = torch.autocast(device_type=device_type, dtype=dtype, enabled=dtype != torch.float32)
    scaler = torch.cuda.amp.GradScaler(enabled=args.dtype == "float16")

    start = time.time()
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args)
        for _ in range(args.accumulate):
            x, y = get_batch(data, args)
            with autocast:
                logits = model(x)
                loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1)) / args.accumulate
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        if step % 20 == 0 or step == args.steps - 1:
            print(f"step {step:4d}  loss {loss.item() * args.accumulate:.4f}  {time.time() - start:.1f} s")

    if torch.cuda.is_available():
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB")
    if args.checkpoint:
        torch.save({"model": model.state_dict(), "args": vars(args)}, os.path.expanduser(args.checkpoint))
    model.eval()
    ids = model.generate(torch.zeros(1, 1, dtype=torch.long, device=args.device), 60)
    print("".join(characters[i] for i in ids[0].tolist()))


if __name__ == "__main__":
    main()
