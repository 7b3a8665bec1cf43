"""mmengine: it knows the NPU: its device, its collectives and its optimizer wrapper."""

import mmengine.device
import mmengine.dist
import mmengine.optim
import torch

torch.manual_seed(0)
print("device", mmengine.device.get_device(), mmengine.device.is_npu_available(), mmengine.device.is_cuda_available())
print("world", mmengine.dist.get_world_size())
model = torch.nn.Linear(4, 1).to(mmengine.device.get_device())
wrapper = mmengine.optim.OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.1), accumulative_counts=2)
for _ in range(4):
    loss = model(torch.ones(2, 4, device="npu")).pow(2).mean()
    wrapper.update_params(loss)
    print("loss", f"{loss.item():.6f}")
