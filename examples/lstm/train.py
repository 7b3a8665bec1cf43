"""Train a character language model with an LSTM on a text that Python brings, with a CUDA GPU."""

import argparse
import math
from pathlib import Path

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, characters, width=64, layers=2):
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.lstm = nn.LSTM(width, width, layers)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(width, characters)

    def forward(self, x, state=None):
        y, state = self.lstm(self.embedding(x), state)
        return self.head(self.dropout(y)), state


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--device", default="cuda:0")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.cuda.manual_seed_all(0)
    text = Path(argparse.__file__).read_text()[:8000]
    characters = sorted(set(text))
    data = torch.tensor([characters.index(character) for character in text]).cuda()
    rows = len(data) // args.batch_size
    data = data[: rows * args.batch_size].view(args.batch_size, rows).t().contiguous()
    model = Model(len(characters)).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    state, position = None, 0
    for step in range(args.steps):
        if position + args.length + 1 >= len(data):
            state, position = None, 0
        x = data[position : position + args.length]
        y = data[position + 1 : position + args.length + 1]
        position += args.length
        if state is not None:
            state = tuple(part.detach() for part in state)
        logits, state = model(x, state)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if step % 10 == 0 or step == args.steps - 1:
            print(f"step {step} perplexity {math.exp(loss.item()):.2f}")
    print(f"peak memory {torch.cuda.max_memory_allocated() / 2**20:.1f} MiB on {torch.cuda.get_device_name(0)}")


if __name__ == "__main__":
    main()
