"""ultralytics: a small detector forward and backward, its choice of a device, and its average of weights."""

import torch
from ultralytics.nn.tasks import DetectionModel
from ultralytics.utils.torch_utils import ModelEMA, select_device

torch.manual_seed(0)
print("device", select_device("cpu", verbose=False).type)
model = DetectionModel("yolov8n.yaml", ch=3, nc=2, verbose=False).to("npu")
average = ModelEMA(model)
model.train()
out = model(torch.randn(2, 3, 64, 64, device="npu"))
parts = out.values() if isinstance(out, dict) else out
total = sum(part.float().pow(2).mean() for part in parts if isinstance(part, torch.Tensor))
total.backward()
average.update(model)
print("loss", f"{float(total):.4f}")
