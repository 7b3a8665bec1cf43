"""Write words backwards: an encoder and a decoder with attention, and less and less teacher forcing."""

import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, START, END, LETTERS = 0, 1, 2, 14
SIZE = 3 + LETTERS


class Seq2Seq(nn.Module):
    def __init__(self, width=24, hidden=48):
        super().__init__()
        self.embed = nn.Embedding(SIZE, width, padding_idx=PAD)
        self.encoder = nn.GRU(width, hidden, batch_first=True)
        self.decoder = nn.GRU(width + hidden, hidden, batch_first=True)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.drop = nn.Dropout(0.05)
        self.out = nn.Linear(2 * hidden, SIZE)

    def encode(self, words):
        memory, state = self.encoder(self.drop(self.embed(words)))
        return memory, state, words == PAD

    def step(self, letter, state, memory, padding):
        scores = (memory @ self.query(state[-1]).unsqueeze(2)).squeeze(2)
        scores = scores.masked_fill(padding, -1e4)
        context = scores.softmax(dim=1).unsqueeze(1) @ memory
        x = torch.cat([self.embed(letter).unsqueeze(1), context], dim=2)
        output, state = self.decoder(x, state)
        return self.out(torch.cat([output, context], dim=2).squeeze(1)), state

    def forward(self, words, targets, teacher_forcing):
        """The logits of each letter; `teacher_forcing` is the share of places that are given the true letter."""
        memory, state, padding = self.encode(words)
        letter = torch.full_like(targets[:, 0], START)
        steps = []
        for place in range(targets.size(1)):
            logits, state = self.step(letter, state, memory, padding)
            steps.append(logits)
            letter = targets[:, place] if random.random() < teacher_forcing else logits.argmax(dim=1)
        return torch.stack(steps, dim=1)

    @torch.no_grad()
    def greedy(self, words, length):
        memory, state, padding = self.encode(words)
        letter, written = torch.full_like(words[:, 0], START), []
        for _ in range(length):
            logits, state = self.step(letter, state, memory, padding)
            letter = logits.argmax(dim=1)
            written.append(letter)
        return torch.stack(written, dim=1)


def make_batch(count, rng, longest=4):
    words = [[rng.randrange(3, SIZE) for _ in range(rng.randint(2, longest))] for _ in range(count)]
    padded = torch.tensor([word + [PAD] * (longest - len(word)) for word in words])
    targets = torch.tensor([word[::-1] + [END] + [PAD] * (longest - len(word)) for word in words])
    return padded.cuda(), targets.cuda()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=52)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--lr", type=float, default=0.012)
    parser.add_argument("--least-forcing", type=float, default=0.5)
    args = parser.parse_args()
    random.seed(1)
    torch.manual_seed(1)

    rng = random.Random(3)
    model = Seq2Seq().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for step in range(args.steps):
        words, targets = make_batch(args.batch_size, rng)
        forcing = max(args.least_forcing, 1.0 - step / 60)
        logits = model(words, targets, forcing)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 13 == 0:
            print(f"step {step + 1}\tforcing {forcing:.2f}\tloss {loss.item():.4f}")

    model.eval()
    words, targets = make_batch(300, random.Random(4))
    written = model.greedy(words, targets.size(1))
    matches = (written == targets) | (targets == PAD)
    letters = (matches & (targets != PAD)).sum().item() / (targets != PAD).sum().item()
    print(f"{matches.all(dim=1).sum().item()} of {len(words)} words right, {100 * letters:.2f} % of the letters")


if __name__ == "__main__":
    main()
