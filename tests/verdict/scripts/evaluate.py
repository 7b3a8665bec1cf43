"""Perplexity of a causal language model on a text: nothing is trained."""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class LanguageModel(nn.Module):
    def __init__(self, size=50, width=48, heads=4, layers=2, length=32):
        super().__init__()
        self.embed = nn.Embedding(size, width)
        self.position = nn.Parameter(torch.randn(length, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, heads, 96, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, size, bias=False)

    def forward(self, words):
        length = words.size(1)
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=words.device)
        hidden = self.embed(words) + self.position[:length]
        hidden = self.encoder(hidden, mask=mask)
        return self.head(hidden)


def corpus(words=4097, size=50):
    """A random walk through the vocabulary."""
    generator = torch.Generator().manual_seed(0)
    steps = torch.randint(-3, 4, (words,), generator=generator)
    return steps.cumsum(0) % size


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--weights", help="a state dict; without it the model is as it was initialised")
    args = parser.parse_args()
    torch.manual_seed(42)

    text = corpus()
    loader = DataLoader(
        TensorDataset(text[:-1].view(-1, 32), text[1:].view(-1, 32)), batch_size=args.batch_size, shuffle=False
    )
    model = LanguageModel()
    if args.weights:
        model.load_state_dict(torch.load(args.weights))
    model.cuda()
    model.eval()

    total, count = 0.0, 0
    for words, following in loader:
        logits = model(words.cuda())
        loss = F.cross_entropy(logits.flatten(0, 1), following.cuda().flatten(), reduction="sum")
        total += loss.item()
        count += following.numel()
    print(f"{count} words, loss {total / count:.5f}, perplexity {math.exp(total / count):.3f}")


if __name__ == "__main__":
    main()
