"""Two stages: CLIP contrastive training with small towers, then a linear probe on the frozen image tower."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from open_clip import ClipLoss

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


class ImageTower(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.GELU(), nn.Conv2d(16, 32, 3, 2, 1), nn.GroupNorm(4, 32))
        self.proj = nn.Linear(32, dim, bias=False)

    def forward(self, x):
        return F.normalize(self.proj(self.stem(x).mean(dim=(2, 3))), dim=-1)


class TextTower(nn.Module):
    def __init__(self, vocab=64, width=32, dim=32, context=8):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, width), nn.Parameter(0.01 * torch.randn(context, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.proj = nn.Parameter(width**-0.5 * torch.randn(width, dim))

    def forward(self, text):
        causal = nn.Transformer.generate_square_subsequent_mask(text.size(1), device=text.device)
        x = self.encoder(self.tok(text) + self.pos, mask=causal, is_causal=True)
        return F.normalize(x[torch.arange(x.size(0), device=x.device), text.argmax(dim=-1)] @ self.proj, dim=-1)


g = torch.Generator().manual_seed(0)
classes = torch.randint(0, 6, (96,), generator=g)
images = torch.randn(6, 3, 1, 1, generator=g)[classes] + 0.5 * torch.randn(96, 3, 32, 32, generator=g)
texts = torch.randint(10, 60, (96, 8), generator=g)
texts[:, 0], texts[:, 6], texts[:, 7] = classes + 1, 63, 0

visual, text = ImageTower().to(device), TextTower().to(device)
logit_scale = nn.Parameter(torch.tensor(1 / 0.07, device=device).log())
clip_loss, params = ClipLoss(), [*visual.parameters(), *text.parameters(), logit_scale]
optimizer = torch.optim.AdamW(params, lr=1e-3, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01)
for step, (image, caption) in enumerate(zip(images.split(24), texts.split(24))):
    loss = clip_loss(visual(image.to(device)), text(caption.to(device)), logit_scale.exp())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        logit_scale.clamp_(0, 4.6052)
    print(f"clip step {step} loss {loss.item():.6f} scale {logit_scale.exp().item():.4f}")

visual.requires_grad_(False).eval()
probe = nn.Linear(32, 6).to(device)
probe_optimizer = torch.optim.SGD(probe.parameters(), lr=1.0, momentum=0.9)
for step, (image, label) in enumerate(zip(images.split(24), classes.split(24))):
    with torch.no_grad():
        features = visual(image.to(device))
    loss = F.cross_entropy(probe(features), label.to(device))
    probe_optimizer.zero_grad()
    loss.backward()
    probe_optimizer.step()
    print(f"probe step {step} loss {loss.item():.6f}")
