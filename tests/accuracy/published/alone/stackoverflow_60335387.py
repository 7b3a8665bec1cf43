import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 5)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.fc = nn.Linear(16 * 4, 10)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        return self.fc(x.flatten(1))


def digits(n, seed):
    g = torch.Generator().manual_seed(seed)
    shapes = torch.rand(10, 1, 16, 16, generator=torch.Generator().manual_seed(1)) > 0.6
    label = torch.randint(0, 10, (n,), generator=g)
    img = shapes[label].float() + 0.4 * torch.randn(n, 1, 16, 16, generator=g)
    return TensorDataset(img, label)


forget = len(sys.argv) > 1 and sys.argv[1] == "--fault"
torch.manual_seed(2020)
train_loader = DataLoader(digits(640, 7), batch_size=32, shuffle=True)
test_img, test_label = digits(200, 8).tensors
model = ConvNet().cuda()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)

for epoch in range(2):
    model.train()
    for batch_idx, (data, label) in enumerate(train_loader):
        data, label = data.cuda(), label.cuda()
        if not forget:
            optimizer.zero_grad()
        pred_score = model(data)
        loss = criterion(pred_score, label)
        loss.backward()
        optimizer.step()
        if batch_idx % 10 == 0:
            print(f"epoch {epoch} batch {batch_idx} loss {loss.item():.4f}")
    model.eval()
    with torch.no_grad():
        acc = (model(test_img.cuda()).argmax(1).cpu() == test_label).float().mean().item()
    print(f"epoch {epoch} accuracy {acc:.3f}")
