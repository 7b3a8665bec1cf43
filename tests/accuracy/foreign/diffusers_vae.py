"""Training a diffusers AutoencoderKL: reconstruction plus a small KL term."""

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

vae = AutoencoderKL(
    in_channels=3,
    out_channels=3,
    down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
    up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
    block_out_channels=(16, 32),
    layers_per_block=1,
    latent_channels=4,
    norm_num_groups=8,
    sample_size=32,
).to(device)
vae.train()

optimizer = torch.optim.Adam(vae.parameters(), lr=2e-3, betas=(0.5, 0.9))
kl_weight = 1e-6 * 32 * 32

g = torch.Generator().manual_seed(0)
coarse = torch.randn(32, 3, 4, 4, generator=g)
images = F.interpolate(coarse, size=(32, 32), mode="bicubic", align_corners=False).clamp(-1, 1)

for step, batch in enumerate(images.split(8)):
    batch = batch.to(device)
    posterior = vae.encode(batch).latent_dist
    latents = posterior.sample()
    reconstruction = vae.decode(latents).sample

    rec_loss = F.l1_loss(reconstruction, batch)
    kl_loss = posterior.kl().mean()
    loss = rec_loss + kl_weight * kl_loss

    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(vae.parameters(), 1.0)
    optimizer.step()
    print(f"step {step} loss {loss.item():.6f} rec {rec_loss.item():.6f} kl {kl_loss.item():.4f}")

vae.eval()
with torch.no_grad():
    mode = vae.encode(images[:8].to(device)).latent_dist.mode()
    psnr = -10 * torch.log10(F.mse_loss(vae.decode(mode).sample, images[:8].to(device)) / 4)
print(f"psnr {psnr.item():.4f}")
