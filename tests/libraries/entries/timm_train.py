"""timm: a model, its optimizer, its scheduler, mixup and its average of weights."""

import timm
import timm.data
import timm.optim
import timm.scheduler
import timm.utils
import torch

torch.manual_seed(0)
model = timm.create_model("resnet10t", num_classes=4).to("npu")
optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
scheduler = timm.scheduler.CosineLRScheduler(optimizer, t_initial=4)
average = timm.utils.ModelEmaV3(model, decay=0.9)
x, y = torch.randn(4, 3, 32, 32, device="npu"), torch.tensor([0, 1, 2, 3], device="npu")
for step in range(2):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    average.update(model)
    scheduler.step(step)
    print("loss", f"{loss.item():.4f}")
print("accuracy", float(timm.utils.accuracy(model(x), y)[0]))
