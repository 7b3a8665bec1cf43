"""CIFAR-style CNN with PReLU and BatchNorm, Nesterov SGD (foreach) and a multi-step schedule."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Residual(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1, self.act1 = nn.BatchNorm2d(cout), nn.PReLU(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2, self.act2 = nn.BatchNorm2d(cout), nn.PReLU(cout)
        self.shortcut = nn.Sequential()
        if stride != 1 or cin != cout:
            self.shortcut = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        out = self.bn2(self.conv2(self.act1(self.bn1(self.conv1(x)))))
        return self.act2(out + self.shortcut(x))


model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1, bias=False),
    nn.BatchNorm2d(16),
    nn.PReLU(),
    Residual(16, 16),
    nn.MaxPool2d(2),
    Residual(16, 32, stride=2),
    Residual(32, 48, stride=2),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Dropout(0.1),
    nn.Linear(48, 10),
).to(device)
for m in model.modules():
    if isinstance(m, nn.Conv2d):
        nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

g = torch.Generator().manual_seed(0)
labels = torch.randint(0, 10, (96,), generator=g)
means = torch.randn(10, 3, 1, 1, generator=g)
images = means[labels] + torch.randn(96, 3, 32, 32, generator=g)
loader = DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True, drop_last=True)

criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True, foreach=True)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[3, 5], gamma=0.1)

model.train()
for step, (inputs, targets) in enumerate(loader):
    inputs, targets = inputs.to(device), targets.to(device)
    optimizer.zero_grad()
    outputs = model(inputs)
    loss = criterion(outputs, targets)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=2.0, foreach=True)
    optimizer.step()
    scheduler.step()
    correct = outputs.argmax(1).eq(targets).sum().item()
    print(f"step {step} loss {loss.item():.6f} grad norm {norm.item():.4f} acc {correct}/{len(targets)}")
