"""segmentation_models_pytorch: a UNet with a Dice loss."""

import segmentation_models_pytorch as smp
import torch

torch.manual_seed(0)
model = smp.Unet("resnet18", encoder_weights=None, classes=2).to("npu")
criterion = smp.losses.DiceLoss("multiclass")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(2, 3, 32, 32, device="npu"), torch.randint(0, 2, (2, 32, 32)).to("npu")
for _ in range(2):
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", f"{loss.item():.4f}")
