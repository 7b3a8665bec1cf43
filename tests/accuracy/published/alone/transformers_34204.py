"""Visual question answering on synthetic pictures with a processor for (images, texts)."""

import sys

import torch
from torch import nn

QUESTIONS = ["which colour is it", "is it bright", "which side is lit"]
WORDS = {w: i + 2 for i, w in enumerate(sorted({w for q in QUESTIONS for w in q.split()}))}
IMG, PAD = 1, 0


class PictureTextProcessor:
    """Makes model inputs of a list of pictures and a list of questions, one picture for each."""

    def __init__(self, one_list_for_all):
        self.one_list_for_all = one_list_for_all

    def __call__(self, images, text):
        # nested form: for every example, the list of its pictures
        nested = [list(images)] if self.one_list_for_all else [[im] for im in images]
        rows = []
        for sample_images, prompt in zip(nested, text):
            rows.append([IMG] + [WORDS[w] for w in prompt.split()])
        width = max(map(len, rows))
        ids = torch.tensor([r + [PAD] * (width - len(r)) for r in rows])
        pixels = torch.stack([im for group in nested for im in group])
        return {"input_ids": ids, "pixel_values": pixels}


class VQA(nn.Module):
    def __init__(self, n_answers=6, d=32):
        super().__init__()
        self.words = nn.EmbeddingBag(len(WORDS) + 2, d, mode="mean", padding_idx=PAD)
        self.vision = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, d)
        )
        self.answer = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, n_answers))

    def forward(self, input_ids, pixel_values):
        h = torch.tanh(self.vision(pixel_values)) * self.words(input_ids) + self.words(input_ids)
        return self.answer(h)


def examples(n):
    images, texts, answers = [], [], []
    for _ in range(n):
        colour, bright, side = (int(torch.randint(0, 2, ())) for _ in range(3))
        im = 0.1 * torch.randn(3, 8, 8)
        im[0 if colour else 2, :, (slice(0, 4) if side else slice(4, 8))] += 1.0 + bright
        q = int(torch.randint(0, 3, ()))
        images.append(im)
        texts.append(QUESTIONS[q])
        answers.append(2 * q + (colour, bright, side)[q])
    return images, texts, torch.tensor(answers)


torch.manual_seed(34204)
processor = PictureTextProcessor(one_list_for_all="--fault" in sys.argv)
model = VQA().to("cuda")
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(50):
    images, texts, answers = examples(24)
    inputs = {k: v.to("cuda") for k, v in processor(images, texts).items()}
    logits = model(**inputs)
    loss = nn.functional.cross_entropy(logits, answers.to("cuda"))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f} input_ids {tuple(inputs['input_ids'].shape)}")
