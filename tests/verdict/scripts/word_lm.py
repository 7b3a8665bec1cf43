"""A word-level recurrent language model: truncated backpropagation, clipping, annealed learning rate."""

import argparse
import math

import torch
import torch.nn as nn

parser = argparse.ArgumentParser(description="word language model")
parser.add_argument("--emsize", type=int, default=24)
parser.add_argument("--nhid", type=int, default=32)
parser.add_argument("--lr", type=float, default=4.0)
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--bptt", type=int, default=10)
parser.add_argument("--dropout", type=float, default=0.2)
args = parser.parse_args()
torch.manual_seed(1111)
device = torch.device("cuda")

SENTENCES = """the old man took the boat to the island <eos> the boat was small and the sea was wide <eos>
a gull followed the boat to the island and back <eos> the man had bread and the gull had time <eos>
back on the pier the old man gave the bread to the gull <eos> the gull took the bread and left the man <eos>"""


def numbered():
    words = (SENTENCES.split() * 40)[:2400]
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(words))}
    return torch.tensor([vocabulary[word] for word in words]), len(vocabulary)


def batchify(data, columns):
    rows = data.size(0) // columns
    return data[: rows * columns].view(columns, -1).t().contiguous().to(device)


class RNNModel(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.drop = nn.Dropout(args.dropout)
        self.encoder = nn.Embedding(size, args.emsize)
        self.rnn = nn.GRU(args.emsize, args.nhid)
        self.decoder = nn.Linear(args.nhid, size)

    def forward(self, words, hidden):
        emb = self.drop(self.encoder(words))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output))
        return decoded.flatten(0, 1), hidden


def get_batch(source, i):
    length = min(args.bptt, len(source) - 1 - i)
    return source[i : i + length], source[i + 1 : i + 1 + length].reshape(-1)


def run_epoch(model, source, criterion, optimizer):
    model.train()
    total = 0.0
    hidden = torch.zeros(1, args.batch_size, args.nhid, device=device)
    starts = list(range(0, source.size(0) - 1, args.bptt))
    for i in starts:
        data, targets = get_batch(source, i)
        hidden = hidden.detach()
        optimizer.zero_grad()
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        total += loss.item()
    return total / len(starts)


numbers, size = numbered()
train_data = batchify(numbers, args.batch_size)
model = RNNModel(size).to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, weight_decay=1e-5)
for epoch in range(1, args.epochs + 1):
    loss = run_epoch(model, train_data, criterion, optimizer)
    print(
        f"| end of epoch {epoch} | lr {optimizer.param_groups[0]['lr']:.2f} | loss {loss:5.3f} | ppl {math.exp(loss):8.3f}"
    )
    for group in optimizer.param_groups:
        group["lr"] /= 2
