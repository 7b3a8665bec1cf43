"""A small UNet of diffusers that learns to take noise away."""

import torch
from diffusers import DDPMScheduler, UNet2DModel

torch.manual_seed(0)
net = UNet2DModel(
    sample_size=16,
    in_channels=3,
    out_channels=3,
    layers_per_block=1,
    block_out_channels=(32, 64),
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    norm_num_groups=8,
).cuda()
scheduler = DDPMScheduler(100)
optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
for _ in range(25):
    images, noise = torch.randn(4, 3, 16, 16).cuda(), torch.randn(4, 3, 16, 16).cuda()
    times = torch.randint(0, 100, (4,)).cuda()
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(net(scheduler.add_noise(images, noise, times), times).sample, noise).backward()
    optimizer.step()
