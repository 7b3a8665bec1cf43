"""diffusers: two steps of a small UNet, and two steps of a pipeline."""

import diffusers
import torch

torch.manual_seed(0)
unet = diffusers.UNet2DModel(
    sample_size=8,
    in_channels=3,
    out_channels=3,
    block_out_channels=(32, 32),
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    layers_per_block=1,
).to("npu")
scheduler = diffusers.DDPMScheduler(num_train_timesteps=10)
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-3)
images, noise = torch.randn(2, 3, 8, 8, device="npu"), torch.randn(2, 3, 8, 8, device="npu")
for step in range(2):
    t = torch.tensor([step, step + 4], device="npu")
    loss = torch.nn.functional.mse_loss(unet(scheduler.add_noise(images, noise, t), t).sample, noise)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", f"{loss.item():.5f}")
pipeline = diffusers.DDPMPipeline(unet, scheduler)
pipeline.set_progress_bar_config(disable=True)
made = pipeline(num_inference_steps=2, output_type="np", generator=torch.Generator().manual_seed(1)).images
print("image", made.shape, f"{float(made.mean()):.4f}")
