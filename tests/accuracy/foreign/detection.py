"""Fine-tuning a torchvision Faster R-CNN with a small backbone on synthetic rectangles."""

import torch
from torch import nn
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.ops import MultiScaleRoIAlign

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Rectangles(torch.utils.data.Dataset):
    def __init__(self, n=8, size=96, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.samples = []
        for _ in range(n):
            image = 0.1 * torch.rand(3, size, size, generator=g)
            k = int(torch.randint(1, 4, (1,), generator=g))
            xy = torch.randint(0, size - 40, (k, 2), generator=g)
            wh = torch.randint(16, 40, (k, 2), generator=g)
            boxes = torch.cat([xy, xy + wh], dim=1)
            labels = torch.randint(1, 4, (k,), generator=g)
            for (x1, y1, x2, y2), label in zip(boxes.tolist(), labels.tolist()):
                image[label - 1, y1:y2, x1:x2] = 0.9
            self.samples.append((image, {"boxes": boxes.float(), "labels": labels}))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, idx):
        return self.samples[idx]


def conv(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(True))


backbone = nn.Sequential(conv(3, 16), conv(16, 32), conv(32, 32))
backbone.out_channels = 32
model = FasterRCNN(
    backbone,
    num_classes=4,
    min_size=96,
    max_size=128,
    rpn_anchor_generator=AnchorGenerator(sizes=((16, 24, 32, 48),), aspect_ratios=((0.5, 1.0, 2.0),)),
    box_roi_pool=MultiScaleRoIAlign(featmap_names=["0"], output_size=5, sampling_ratio=2),
    rpn_pre_nms_top_n_train=200,
    rpn_post_nms_top_n_train=64,
    box_batch_size_per_image=32,
).to(device)
loader = torch.utils.data.DataLoader(Rectangles(), batch_size=2, shuffle=True, collate_fn=lambda b: tuple(zip(*b)))
optimizer = torch.optim.SGD(
    [p for p in model.parameters() if p.requires_grad], lr=0.01, momentum=0.9, weight_decay=5e-4
)

model.train()
for step, (images, targets) in enumerate(loader):
    images = [image.to(device) for image in images]
    targets = [{k: v.to(device) for k, v in t.items()} for t in targets]
    loss_dict = model(images, targets)
    losses = sum(loss_dict.values())
    optimizer.zero_grad()
    losses.backward()
    optimizer.step()
    print(f"step {step} loss {losses.item():.6f} " + " ".join(f"{k} {v.item():.4f}" for k, v in loss_dict.items()))
