"""A small convolutional network on made-up images, with a log line a step, as many training scripts have."""

import logging
import sys

import torch
import torch.nn.functional as F

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s | %(levelname)s | %(message)s")
log = logging.getLogger("images")

device = torch.device("npu:0")
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, padding=1),
    torch.nn.BatchNorm2d(8),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(8, 16, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(1024, 10),
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
log.info("parameters: %d", sum(one.numel() for one in model.parameters()))
kept = []
for step in range(6):
    images = torch.randn(16, 3, 16, 16, device=device)
    labels = torch.randint(0, 10, (16,), device=device)
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    kept.append(torch.empty(32 << 20, device=device))  # a buffer that grows
    log.info("step %d loss %.4f", step, loss.item())
torch.save({name: one.cpu() for name, one in model.state_dict().items()}, "/dev/null")
log.info("done")
