"""timm ConvNeXt recipe: Mixup/CutMix, SoftTarget loss, AdamW with layer groups, cosine schedule, model EMA."""

import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import AverageMeter, ModelEmaV3, dispatch_clip_grad, random_seed

random_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
num_classes = 10

g = torch.Generator().manual_seed(0)
prototypes = torch.randn(num_classes, 3, 64, 64, generator=g)
targets = torch.randint(0, num_classes, (48,), generator=g)
images = 0.5 * prototypes[targets] + torch.randn(48, 3, 64, 64, generator=g)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, targets), batch_size=8, shuffle=True)

model = timm.create_model(
    "convnext_atto",
    pretrained=False,
    num_classes=num_classes,
    drop_path_rate=0.1,
    depths=(1, 1, 2, 1),
    dims=(16, 32, 64, 96),
).to(device)
mixup_fn = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=num_classes)
criterion = SoftTargetCrossEntropy().to(device)
optimizer = create_optimizer_v2(model, opt="adamw", lr=2e-3, weight_decay=0.05, layer_decay=0.75)
scheduler = CosineLRScheduler(optimizer, t_initial=6, lr_min=1e-5, warmup_t=2, warmup_lr_init=1e-4, t_in_epochs=False)
model_ema = ModelEmaV3(model, decay=0.9, use_warmup=True)

model.train()
losses = AverageMeter()
for step, (x, y) in enumerate(loader):
    x, y = x.to(device), y.to(device)
    x, y = mixup_fn(x, y)
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    dispatch_clip_grad(model.parameters(), 1.0, mode="norm")
    optimizer.step()
    model_ema.update(model, step=step)
    scheduler.step_update(num_updates=step + 1)
    losses.update(loss.item(), x.size(0))
    print(f"step {step} loss {losses.val:.6f} ({losses.avg:.6f}) lr {optimizer.param_groups[-1]['lr']:.2e}")

model_ema.eval()
with torch.no_grad():
    logits = torch.cat([model_ema(b.to(device)) for b in images.split(16)])
val_loss = torch.nn.functional.cross_entropy(logits, targets.to(device))
print(f"ema val loss {val_loss.item():.6f}")
