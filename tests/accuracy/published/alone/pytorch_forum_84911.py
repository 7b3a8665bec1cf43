import argparse

import torch
import torch.nn as nn
import torch.optim as optim

parser = argparse.ArgumentParser(description="transfer learning on little pictures")
parser.add_argument("--fault", action="store_true")
parser.add_argument("--epochs", default=3, type=int)
args = parser.parse_args()

torch.manual_seed(786)
use_cuda = torch.cuda.is_available()


class MBConv(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        mid = cin * 3
        self._expand_conv = nn.Conv2d(cin, mid, 1, bias=False)
        self._bn0 = nn.BatchNorm2d(mid)
        self._depthwise_conv = nn.Conv2d(mid, mid, 3, stride, 1, groups=mid, bias=False)
        self._bn1 = nn.BatchNorm2d(mid)
        self._project_conv = nn.Conv2d(mid, cout, 1, bias=False)
        self._bn2 = nn.BatchNorm2d(cout)
        self._swish = nn.SiLU()

    def forward(self, x):
        x = self._swish(self._bn0(self._expand_conv(x)))
        x = self._swish(self._bn1(self._depthwise_conv(x)))
        return self._bn2(self._project_conv(x))


class TinyEfficientNet(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self._conv_stem = nn.Conv2d(3, 8, 3, 2, 1, bias=False)
        self._bn_stem = nn.BatchNorm2d(8)
        self._blocks = nn.Sequential(MBConv(8, 12, 1), MBConv(12, 16, 2))
        self._fc = nn.Linear(16, num_classes)

    def forward(self, x):
        x = torch.nn.functional.silu(self._bn_stem(self._conv_stem(x)))
        x = self._blocks(x).mean((2, 3))
        return self._fc(x)


def make_split(n, protos):
    y = torch.randint(0, len(protos), (n,))
    return protos[y] + 0.5 * torch.randn(n, 3, 16, 16), y


model_transfer = TinyEfficientNet(1000)
model_transfer._fc = nn.Linear(model_transfer._fc.in_features, 6)  # new task
if use_cuda:
    model_transfer = model_transfer.cuda()

criterion_transfer = nn.CrossEntropyLoss()
optimizer_transfer = optim.Adam(model_transfer._fc.parameters(), lr=0.01)

# keep the body as it is
for name, param in model_transfer.named_parameters():
    if args.fault:
        if "bn" not in name:
            param.requires_grad = False
    elif not name.startswith("_fc."):
        param.requires_grad = False

protos = torch.randn(6, 3, 16, 16)
train_x, train_y = make_split(192, protos)
valid_x, valid_y = make_split(96, protos)


def train(n_epochs, model, optimizer, criterion):
    for epoch in range(1, n_epochs + 1):
        model.train()
        train_loss = 0.0
        for i in range(0, len(train_x), 16):
            data, target = train_x[i : i + 16], train_y[i : i + 16]
            if use_cuda:
                data, target = data.cuda(), target.cuda()
            optimizer.zero_grad()
            output = model(data)
            loss = criterion(output, target)
            loss.backward()
            optimizer.step()
            train_loss += loss.item() / (len(train_x) // 16)
        model.eval()
        with torch.no_grad():
            pred = model(valid_x.cuda() if use_cuda else valid_x).argmax(1).cpu()
        acc = (pred == valid_y).float().mean().item()
        print("Epoch: {} \tTraining Loss: {:.6f} \tValidation Accuracy: {:.3f}".format(epoch, train_loss, acc))


train(args.epochs, model_transfer, optimizer_transfer, criterion_transfer)
