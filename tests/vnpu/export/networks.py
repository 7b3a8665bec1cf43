"""Models that are exported: what people train, small where the size shows nothing."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional


def vision(name: str) -> nn.Module:
    """One of torchvision's, with running statistics that are not those of the start."""
    from torchport import cuda_builds

    cuda_builds.mend_when_imported()
    import torchvision

    model = getattr(torchvision.models, name)()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.8, 1.5)
    return model


class Encoder(nn.Module):
    """BERT's: embeddings, layers of nn.TransformerEncoder with a mask of padding, a pooler."""

    def __init__(self, words: int = 100, width: int = 32) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(64, width)
        layer = nn.TransformerEncoderLayer(width, 4, 64, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.pooler = nn.Linear(width, width)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        bias = (1.0 - mask.float())[:, None, None, :] * -1e4
        bias = bias.expand(-1, 4, ids.shape[1], -1).reshape(-1, ids.shape[1], ids.shape[1])
        hidden = self.layers(hidden, mask=bias)
        return {"hidden": hidden, "pooled": torch.tanh(self.pooler(hidden[:, 0]))}


class Speech(nn.Module):
    """Two layers of a bidirectional LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.log_softmax(self.out(self.lstm(x)[0]), -1)


def block(a: int, b: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))


class UNet(nn.Module):
    """Down by pooling, up by a transposed convolution and by interpolation, with connections across."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = block(3, 8), block(8, 16), block(16, 32)
        self.up = nn.ConvTranspose2d(32, 16, 2, 2)
        self.four, self.five = block(32, 16), block(24, 8)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.one(x)
        two = self.two(functional.max_pool2d(one, 2))
        three = self.three(functional.max_pool2d(two, 2))
        x = self.four(torch.cat((self.up(three), two), 1))
        x = functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return self.out(self.five(torch.cat((x, one), 1)))


class GPT(nn.Module):
    """Causal attention by scaled_dot_product_attention, the output tied to the embedding."""

    def __init__(self, words: int = 100, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(64, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.proj = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
            for _ in range(layers)
        )
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for n in range(len(self.qkv)):
            q, k, v = (
                part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv[n](self.norms[2 * n](x)).chunk(3, -1)
            )
            attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj[n](attended.transpose(1, 2).flatten(2))
            x = x + self.mlp[n](self.norms[2 * n + 1](x))
        return self.head(x)


class Detector(nn.Module):
    """A head on two scales: boxes from distances to anchors' centres, scores, and the best of them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.down = block(3, 8), nn.Sequential(block(8, 16), nn.MaxPool2d(2))
        self.scores = nn.ModuleList((nn.Conv2d(8, 4, 1), nn.Conv2d(16, 4, 1)))
        self.boxes = nn.ModuleList((nn.Conv2d(8, 4, 1), nn.Conv2d(16, 4, 1)))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one = self.stem(x)
        found_scores, found_boxes = [], []
        for n, (feature, stride) in enumerate(((one, 1), (self.down(one), 2))):
            rows, columns = feature.shape[-2:]
            y, x = torch.meshgrid(torch.arange(rows) * stride, torch.arange(columns) * stride, indexing="ij")
            centre = torch.stack((x, y), -1).reshape(1, -1, 2)
            distance = functional.softplus(self.boxes[n](feature)).flatten(2).transpose(1, 2)
            found_boxes.append(torch.cat((centre - distance[..., :2], centre + distance[..., 2:]), -1))
            found_scores.append(torch.sigmoid(self.scores[n](feature)).flatten(2).transpose(1, 2))
        scores, boxes = torch.cat(found_scores, 1), torch.cat(found_boxes, 1)
        best, index = scores.amax(-1).topk(10, 1)
        return boxes, scores, best, boxes.gather(1, index.unsqueeze(-1).expand(-1, -1, 4))


class Llama(nn.Module):
    """A layer of an NPU script: RMSNorm, rotary positions, fused attention and SwiGLU by torch_npu's functions."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = (nn.Parameter(torch.rand(width) + 0.5) for _ in range(2))
        self.q, self.k, self.v = (nn.Linear(width, width), nn.Linear(width, width // 2), nn.Linear(width, width // 2))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)
        angles = torch.outer(torch.arange(16), 1e4 ** (-torch.arange(0, 8, 2) / 8)).repeat(1, 2)
        self.register_buffer("cos", angles.cos()[None, None])
        self.register_buffer("sin", angles.sin()[None, None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        import torch_npu

        normed = torch_npu.npu_rms_norm(x, self.norm, 1e-6)[0]
        q, k, v = (part(normed).unflatten(-1, (-1, 8)).transpose(1, 2) for part in (self.q, self.k, self.v))
        q, k = (torch_npu.npu_rotary_mul(part, self.cos, self.sin) for part in (q, k))
        mask = torch.ones(16, 16, dtype=torch.bool, device=x.device).triu(1)
        out = torch_npu.npu_fusion_attention(
            q.contiguous(), k.contiguous(), v.contiguous(), self.heads, "BNSD", atten_mask=mask, scale=1 / math.sqrt(8)
        )[0]
        x = torch_npu.npu_format_cast(x + out.transpose(1, 2).flatten(2), 2)
        normed = torch_npu.npu_rms_norm(x, self.norm2, 1e-6)[0]
        return torch_npu.fast_gelu(x) + self.down(torch_npu.npu_swiglu(self.up(normed), dim=-1))


# Each with its inputs, as `--input` takes them, and other options.
IMAGE = ("x:1,3,64,64",)
NETWORKS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "resnet50": ("vision", IMAGE, ("--arguments", '{"name": "resnet50"}')),
    "shufflenet": ("vision", IMAGE, ("--arguments", '{"name": "shufflenet_v2_x1_0"}')),
    "mobilenet": ("vision", IMAGE, ("--arguments", '{"name": "mobilenet_v2"}')),
    "bert": ("Encoder", ("ids:2,16:int64:100", "mask:2,16:int64"), ("--dynamic", "ids:0,1", "--dynamic", "mask:0,1")),
    "lstm": ("Speech", ("x:2,12,8",), ("--dynamic", "x:0,1")),
    "unet": ("UNet", ("x:1,3,32,32",), ()),
    "gpt": ("GPT", ("ids:2,16:int64:100",), ()),
    "detector": ("Detector", ("x:1,3,16,16",), ()),
}


def make(name: str) -> Any:
    """A network with weights of its own."""
    torch.manual_seed(3)
    factory, _, options = NETWORKS[name]
    return vision(options[1].split('"')[3]) if factory == "vision" else globals()[factory]()
