"""timm's smallest MobileNetV3 on small images."""

import timm
import torch

torch.manual_seed(0)
net = timm.create_model("mobilenetv3_small_050", num_classes=10).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
for _ in range(30):
    x, y = torch.randn(8, 3, 96, 96).cuda(), torch.randint(0, 10, (8,)).cuda()
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
