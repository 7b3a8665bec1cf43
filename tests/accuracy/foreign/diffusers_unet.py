"""Unconditional diffusion training (DDPM) with diffusers and accelerate, as in the diffusers tutorial."""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel

set_seed(0)

g = torch.Generator().manual_seed(0)
centers = torch.rand(32, 2, 1, 1, generator=g) * 16
grid = torch.stack(torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij"))
blobs = torch.exp(-((grid - centers) ** 2).sum(1, keepdim=True) / 8)
images = (blobs * torch.rand(32, 3, 1, 1, generator=g)) * 2 - 1
train_dataloader = torch.utils.data.DataLoader(images, batch_size=8, shuffle=True)

model = UNet2DModel(
    sample_size=16,
    in_channels=3,
    out_channels=3,
    layers_per_block=1,
    block_out_channels=(16, 32),
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    norm_num_groups=8,
    attention_head_dim=8,
)
noise_scheduler = DDPMScheduler(num_train_timesteps=1000, beta_schedule="squaredcos_cap_v2")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.95, 0.999), weight_decay=1e-6)
lr_scheduler = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=1, num_training_steps=8)

accelerator = Accelerator(gradient_accumulation_steps=1)
ema = EMAModel(model.parameters(), decay=0.99)
ema.to(accelerator.device)
model, optimizer, train_dataloader, lr_scheduler = accelerator.prepare(model, optimizer, train_dataloader, lr_scheduler)

global_step = 0
model.train()
for clean_images in train_dataloader:
    noise = torch.randn(clean_images.shape, device=clean_images.device)
    timesteps = torch.randint(
        0, noise_scheduler.config.num_train_timesteps, (clean_images.shape[0],), device=clean_images.device
    )
    noisy_images = noise_scheduler.add_noise(clean_images, noise, timesteps)
    with accelerator.accumulate(model):
        noise_pred = model(noisy_images, timesteps, return_dict=False)[0]
        loss = F.mse_loss(noise_pred, noise)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        lr_scheduler.step()
        optimizer.zero_grad()
    ema.step(model.parameters())
    accelerator.print(f"step {global_step} loss {loss.detach().item():.6f} lr {lr_scheduler.get_last_lr()[0]:.2e}")
    global_step += 1
