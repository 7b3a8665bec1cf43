"""ResNet-50 (He et al. 2016) in float32 with SGD and momentum, as its papers train it."""

import argparse

import torch
import torchvision

words = argparse.ArgumentParser()
words.add_argument("--batch-size", type=int, default=256)
words = words.parse_args()
with torch.device("cuda"):
    model = torchvision.models.resnet50()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
criterion = torch.nn.CrossEntropyLoss()
images = torch.empty(words.batch_size, 3, 224, 224, device="cuda")
classes = torch.zeros(words.batch_size, dtype=torch.int64, device="cuda")
while True:
    optimizer.zero_grad()
    loss = criterion(model(images), classes)
    loss.backward()
    optimizer.step()
