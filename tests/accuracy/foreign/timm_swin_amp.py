"""Swin transformer from timm trained with bfloat16 autocast."""

import timm
import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


def synthetic_batches(num_batches, batch_size=4, num_classes=8, size=64):
    g = torch.Generator().manual_seed(42)
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
    for _ in range(num_batches):
        y = torch.randint(0, num_classes, (batch_size,), generator=g)
        angle = y.float()[:, None, None] * torch.pi / num_classes
        wave = torch.sin(8 * (xx * angle.cos() + yy * angle.sin()))
        x = wave[:, None].repeat(1, 3, 1, 1) + 0.2 * torch.randn(batch_size, 3, size, size, generator=g)
        yield x, y


model = timm.create_model(
    "swin_tiny_patch4_window7_224",
    pretrained=False,
    num_classes=8,
    img_size=64,
    window_size=4,
    embed_dim=24,
    depths=(2, 2, 2),
    num_heads=(2, 4, 8),
    drop_path_rate=0.1,
).to(device)
criterion = LabelSmoothingCrossEntropy(smoothing=0.1)
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=6)

model.train()
for step, (x, y) in enumerate(synthetic_batches(5)):
    x = x.to(device, non_blocking=True)
    y = y.to(device, non_blocking=True)
    with torch.autocast(device_type=device, dtype=torch.bfloat16):
        logits = model(x)
        loss = criterion(logits, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    scheduler.step()
    print(f"step {step} loss {loss.item():.6f} grad norm {grad_norm.item():.4f}")
