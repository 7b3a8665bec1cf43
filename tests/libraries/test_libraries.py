"""accelerate, diffusers, lightning, timm, transformers and ultralytics train on the NPU in unmodified scripts."""

from __future__ import annotations

import pytest

ACCELERATE = """
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

set_seed(0)
accelerator = Accelerator(mixed_precision=PRECISION)
x = torch.randn(64, 8)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), 8)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
losses = []
for epoch in range(6):
    total = 0.0
    for inputs, targets in data:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        total += loss.item()
    losses.append(total)
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
gathered = accelerator.gather(weights.unsqueeze(0))
# A line is one write, which no other process can come between.
where = f"{len(gathered)} {accelerator.device.type} {accelerator.state.backend}"
print(f"same {bool((gathered == gathered[0]).all())} {where}\\nlearns {losses[-1] < 0.7 * losses[0]}\\n", end="", flush=True)
"""


def test_accelerate(run) -> None:
    """Its own choice of the device: it knows the NPU, and must not be told of CUDA."""
    assert run(ACCELERATE.replace("PRECISION", "'no'")).stdout == "same True 1 cuda None\nlearns True\n"


def test_accelerate_in_mixed_precision(run) -> None:
    # torch_npu's scaler prints to stdout as well.
    lines = run(ACCELERATE.replace("PRECISION", "'fp16'")).stdout.splitlines()
    assert lines[-2:] == ["same True 1 cuda None", "learns True"]


def test_accelerate_with_two_processes(run) -> None:
    out = run(ACCELERATE.replace("PRECISION", "'no'"), "--nproc", "2").stdout
    assert sorted(out.splitlines()) == ["learns True"] * 2 + ["same True 2 cuda hccl"] * 2


TRANSFORMERS = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

config = GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
rows = [{"input_ids": torch.arange(16) % 8 + start, "labels": torch.arange(16) % 8 + start} for start in range(8)] * 4
arguments = TrainingArguments(
    "out", per_device_train_batch_size=8, num_train_epochs=6, learning_rate=5e-3, logging_steps=4, save_strategy="no",
    report_to=[], disable_tqdm=True, seed=0,
)
trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=rows)
result = trainer.train()
history = [row["loss"] for row in trainer.state.log_history if "loss" in row]
print("device", arguments.device.type, next(trainer.model.parameters()).is_cuda)
print("learns", float(history[-1]) < 0.6 * float(history[0]))
"""


def test_transformers_trainer(run) -> None:
    lines = run(TRANSFORMERS).stdout.splitlines()
    assert lines[-2:] == ["device cuda True", "learns True"]


FABRIC = """
import torch
from lightning.fabric import Fabric

fabric = Fabric(accelerator="cuda", devices=1, precision=PRECISION)
fabric.launch()
fabric.seed_everything(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), lr=1e-2))
x = torch.randn(64, 8)
data = fabric.setup_dataloaders(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), 8))
losses = []
for epoch in range(6):
    for inputs, targets in data:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        fabric.backward(loss)
        optimizer.step()
    losses.append(loss.item())
print("device", fabric.device.type, inputs.is_cuda)
print("learns", losses[-1] < 0.7 * losses[0])
"""


def test_lightning_fabric(run) -> None:
    assert run(FABRIC.replace("PRECISION", "'32-true'")).stdout.splitlines() == ["device cuda True", "learns True"]


def test_lightning_fabric_in_mixed_precision(run) -> None:
    assert run(FABRIC.replace("PRECISION", "'16-mixed'")).stdout.splitlines()[-2:] == [
        "device cuda True",
        "learns True",
    ]


TIMM = """
import torch
import timm
from timm.optim import create_optimizer_v2
from timm.utils import NativeScaler

torch.manual_seed(0)
model = timm.create_model("resnet10t", pretrained=False, num_classes=4, in_chans=1).cuda()
optimizer = create_optimizer_v2(model, opt="adamw", lr=2e-3)
scaler = NativeScaler()
x = torch.randn(16, 1, 32, 32).cuda()
y = torch.arange(16).cuda() % 4
losses = []
for step in range(8):
    with torch.autocast("cuda"):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    scaler(loss, optimizer, parameters=model.parameters())
    losses.append(loss.item())
torch.cuda.synchronize()
print("device", next(model.parameters()).device.type)
print("learns", losses[-1] < 0.7 * losses[0])
"""


def test_timm(run) -> None:
    assert run(TIMM).stdout.splitlines()[-2:] == ["device cuda", "learns True"]


LIGHTNING = """
import torch, lightning as L
import torchport.vnpu
class M(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 2)
    def training_step(self, batch, index):
        self.where = batch[0].device.type, self.net.weight.device.type
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)
x = torch.randn(64, 8)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long()), 8)
trainer = L.Trainer(accelerator=ACCELERATOR, devices=1, max_epochs=1, logger=False, enable_checkpointing=False,
                    enable_progress_bar=False, enable_model_summary=False)
model = M()
trainer.fit(model, data)
torch.npu.synchronize()
print("trained on", *model.where, torchport.vnpu.launches() > 0)
"""


@pytest.mark.parametrize(
    ("accelerator", "converted", "said"),
    [
        ("'gpu'", True, "trained on npu npu True"),
        ("'auto'", True, "trained on npu npu True"),
        ("'auto'", False, "trained on cpu cpu False"),  # without what convert adds, nobody is told
    ],
)
def test_a_converted_lightning_script(plain, accelerator: str, converted: bool, said: str) -> None:
    assert plain(LIGHTNING.replace("ACCELERATOR", accelerator), converted).stdout.splitlines()[-1] == said


DIFFUSERS = """
import torch
from diffusers import DDPMScheduler, UNet2DConditionModel
torch.manual_seed(0)
unet = UNet2DConditionModel(
    sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64), cross_attention_dim=32,
    down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), attention_head_dim=8,
).cuda()
optimizer = torch.optim.AdamW(unet.parameters(), 1e-3)
scheduler = DDPMScheduler()
x, text, noise = torch.randn(4, 4, 8, 8).cuda(), torch.randn(4, 5, 32).cuda(), torch.randn(4, 4, 8, 8).cuda()
losses = []
for step in range(8):
    noisy = scheduler.add_noise(x, noise, torch.full((4,), 500).cuda())
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.mse_loss(unet(noisy, 500, text).sample.float(), noise)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print("device", next(unet.parameters()).device.type)
print("learns", losses[-1] < 0.7 * losses[0])
"""


def test_diffusers(run) -> None:
    lines = run(DIFFUSERS).stdout.splitlines()
    assert lines[-2:] == ["device cuda", "learns True"]


# channels_last: torch_npu refuses the memory format, which ultralytics takes by itself for CUDA.
ULTRALYTICS = """
import random
from pathlib import Path

from PIL import Image, ImageDraw
from ultralytics import YOLO

random.seed(0)
for part in ("train", "val"):
    for kind in ("images", "labels"):
        Path("data", kind, part).mkdir(parents=True, exist_ok=True)
    for number in range(8):
        picture = Image.new("RGB", (64, 64), "black")
        x, y = random.randint(4, 30), random.randint(4, 30)
        ImageDraw.Draw(picture).rectangle((x, y, x + 24, y + 24), fill="white")
        picture.save(f"data/images/{part}/{number}.png")
        Path(f"data/labels/{part}/{number}.txt").write_text(f"0 {(x + 12) / 64} {(y + 12) / 64} {24 / 64} {24 / 64}\\n")
Path("data.yaml").write_text(f"path: {Path('data').resolve()}\\ntrain: images/train\\nval: images/val\\nnames: [box]\\n")
model = YOLO("yolov8n.yaml")
model.train(
    data="data.yaml", epochs=2, batch=4, imgsz=64, device=0, workers=0, seed=0, channels_last=False,
    amp=False, plots=False, verbose=False, project=str(Path("out").resolve())
)
print("device", model.trainer.device.type, next(model.trainer.model.parameters()).is_cuda)
print("saved", Path(model.trainer.last).exists(), int(model.trainer.epoch))
"""


def test_ultralytics(run, tmp_path) -> None:
    """Training, validation with torchvision's nms, and checkpoints."""
    ended = run(ULTRALYTICS)
    assert ended.stdout.splitlines()[-2:] == ["device cuda True", "saved True 1"]
    assert "torchvision.ops.nms" in ended.stderr, "on the CPU, and it is said"
    assert list((tmp_path / "out").rglob("last.pt"))
