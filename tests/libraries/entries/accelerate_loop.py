"""accelerate: it chooses the NPU by itself, prepares a model and a loader, and clips gradients."""

import accelerate
import torch

torch.manual_seed(0)
engine = accelerate.Accelerator(mixed_precision="no", gradient_accumulation_steps=2)
data = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
model = torch.nn.Linear(4, 1)
model, optimizer, loader = engine.prepare(
    model, torch.optim.SGD(model.parameters(), lr=0.1), torch.utils.data.DataLoader(data, batch_size=4)
)
print("device", engine.device.type)
for x, y in loader:
    with engine.accumulate(model):
        loss = torch.nn.functional.mse_loss(model(x), y)
        engine.backward(loss)
        engine.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print("loss", f"{loss.item():.6f}")
