"""Small networks in which contents or sizes of inputs decide sizes or the way, written by somebody who had not read export.

CASES: name, then what is true of the graph that torch.onnx's TorchScript exporter traces: "frozen", it is wrong for some
valid input; "true", it is right for all; "refused", there is no graph. `line` is where the value is frozen (marked
`# <- here`), `inputs` are as `--input` takes them, `dynamic` as `--dynamic`.
"""

from __future__ import annotations

import inspect
import math
from typing import NamedTuple

import numpy as np
import torch
import torchvision
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Network(NamedTuple):
    """A network, and what is true of its traced graph."""

    truth: str
    make: type
    inputs: list[str]
    dynamic: list[str] | None = None
    static: bool = False


class Seeded(nn.Module):
    """A module whose weights are the same at every construction."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)


def corners(boxes):
    """Corner boxes from centres and raw sizes of any sign."""
    half = 0.5 * boxes[:, 2:].abs() + 0.75
    return torch.cat([boxes[:, :2] - half, boxes[:, :2] + half], dim=1)


class NmsCount(Seeded):
    """Detector head: the boxes kept by NMS, padded with zeros to a fixed number of rows."""

    def forward(self, boxes, scores):
        box = corners(boxes)
        keep = torchvision.ops.nms(box, scores, 0.3)
        count = int(keep.numel())  # <- here
        return functional.pad(box[keep], (0, 0, 0, 12 - count))


class TopkThreshold(Seeded):
    """Detector head: as many of the best scores as the fullest image has above the threshold."""

    def forward(self, scores):
        count = (scores > 0.5).sum(dim=1).max()
        k = int(count)  # <- here
        return scores.topk(k, dim=1).values


class ItemScale(Seeded):
    """Dynamic quantisation: the scale is the largest magnitude of the input."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 5)

    def forward(self, x):
        scale = x.abs().max().item() / 127 + 1e-6  # <- here
        return self.linear((x / scale).round() * scale)


class TrimToLongest(Seeded):
    """Speech encoder: cuts a padded batch to its longest sequence."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 5)

    def forward(self, x, lengths):
        longest = lengths.max().item()  # <- here
        return self.linear(x[:, :longest])


class PackedLstm(Seeded):
    """Sentence encoder: the outputs of an LSTM over packed sequences, the lengths passed as a list."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 6, batch_first=True)

    def forward(self, x, lengths):
        sizes = lengths.clamp(min=1).tolist()  # <- here
        packed = pack_padded_sequence(x, sizes, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=9)[0]


class SignBranch(Seeded):
    """One of two heads, by the sign of the mean."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 5), nn.Linear(8, 5)

    def forward(self, x):
        if x.mean() > 0:  # <- here
            return self.first(x)
        return self.second(x)


class TolistSplit(Seeded):
    """Word vectors: sums of the frames of each word, the words' frame counts being an input."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 5)

    def forward(self, frames, counts):
        sizes = counts.tolist()  # <- here
        parts = frames.split([*sizes, 12 - sum(sizes)])
        return self.linear(torch.stack([part.sum(dim=0) for part in parts[:-1]]))


class UniqueCount(Seeded):
    """Text statistics: the embedding sum divided by the number of distinct tokens in the batch."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 6)

    def forward(self, ids):
        types = torch.unique(ids)
        return self.embedding(ids).sum(dim=1) / len(types)  # <- here


class EarlyExit(Seeded):
    """Stacked classifier which stops at the first layer that is sure enough."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(5)])
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        depth, h, score = 0, x, torch.zeros(())
        while score < 0.55 and depth < len(self.layers):  # <- here
            h = h + 0.7 * functional.gelu(self.layers[depth](h))
            logits = self.head(h)
            score, depth = logits.softmax(dim=-1).amax(dim=-1).mean(), depth + 1
        return logits


class NumpyRoundTrip(Seeded):
    """Audio gate: the envelope is computed by NumPy and goes back to torch."""

    def forward(self, wave):
        envelope = np.maximum.accumulate(np.abs(wave.detach().numpy()), axis=1)  # <- here
        return wave * torch.from_numpy(envelope)


class OneHotMax(Seeded):
    """Token histogram by one_hot with as many classes as the largest id asks for."""

    def forward(self, ids):
        return functional.one_hot(ids, num_classes=int(ids.max()) + 1).float().sum(dim=1)  # <- here


class MoeRouting(Seeded):
    """Mixture of experts: every token goes to one expert, experts without tokens are skipped."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, 8)
        self.experts = nn.ModuleList([nn.Linear(8, 8) for _ in range(8)])

    def forward(self, x):
        choice, out = self.router(x).argmax(dim=-1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            idx = torch.nonzero(choice == number).squeeze(-1)
            if idx.numel() == 0:  # <- here
                continue
            out = out.index_add(0, idx, expert(x[idx]))
        return out


class MaskAny(Seeded):
    """Text encoder: a bias vector is added when any token is the mask token (id 0)."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30, 6)
        self.bias = nn.Parameter(torch.randn(6))

    def forward(self, ids):
        h, mask = self.embedding(ids), ids == 0
        if mask.any():  # <- here
            h = h + self.bias
        return h


class LongBranch(Seeded):
    """Sequence pooling: long sequences are reduced by maximum, short ones by mean."""

    def forward(self, x):
        if x.shape[1] > 64:  # <- here
            return x.amax(dim=1)
        return x.mean(dim=1)


class WindowPad(Seeded):
    """Local attention's padding: the length is filled up to a multiple of 4, by a Python int."""

    def forward(self, x):
        pad = int(-x.shape[1] % 4)  # <- here
        x = functional.pad(x, (0, 0, 0, pad))
        return x.reshape(x.shape[0], -1, 4, 8).amax(dim=2)


class ShapeChecks(Seeded):
    """Checks of sizes and of the content (NaN) which raise; TracerWarnings, but nothing is frozen."""

    def __init__(self):
        super().__init__()
        self.width, self.linear = 8, nn.Linear(8, 5)

    def forward(self, x):
        assert x.dim() == 3 and x.shape[2] == self.width, "three axes, the last of size 8"
        if x.shape[2] != self.width:
            raise ValueError(f"expected {self.width} features, not {x.shape[2]}")
        if torch.isnan(x).any():
            raise ValueError("NaN in the input")
        return self.linear(x) / math.sqrt(x.shape[2])


class CenterCrop(Seeded):
    """The middle half of an image of static size, by Python ints."""

    def forward(self, x):
        height, width = int(x.shape[2]), int(x.shape[3])
        top, left = height // 4, width // 4
        crop = x[:, :, top : top + height // 2, left : left + width // 2]
        return functional.interpolate(crop, size=(height, width), mode="nearest")


class StaticWindows(Seeded):
    """Swin's windows with a shift, on an image of static size; the batch stays traced."""

    def forward(self, x):
        batch, height, width, channels = x.shape
        height, width, size = int(height), int(width), 4
        if min(height, width) <= size:
            raise ValueError("the image is not larger than a window")
        x = torch.roll(x, (-2, -2), dims=(1, 2))
        windows = x.view(batch, height // size, size, width // size, size, channels).permute(0, 1, 3, 2, 4, 5)
        windows = windows.reshape(-1, size * size, channels)
        attention = (windows @ windows.transpose(1, 2)).softmax(dim=-1) @ windows
        attention = attention.view(-1, height // size, width // size, size, size, channels)
        return attention.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, channels)


class OptionalMask(Seeded):
    """Attention with an optional mask (`if mask is None`), a masked softmax and torch.where."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, mask=None):
        weights = self.query(x) @ self.key(x).transpose(1, 2) / x.size(-1) ** 0.5
        if mask is None:
            mask = torch.ones_like(x[..., 0])
        allowed = (mask > 0)[:, None, :]
        weights = weights.masked_fill(~allowed, -1e9).softmax(dim=-1)
        return torch.where(allowed.transpose(1, 2), weights @ x, torch.zeros_like(x))


class ConstantsAndLayers(Seeded):
    """Constants made by torch.tensor in forward, and a Python loop over a static number of layers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])

    def forward(self, x):
        scale, weights = torch.tensor(3.0), torch.tensor([0.5, 0.3, 0.2])
        for number in range(len(self.layers)):
            x = x + weights[number] * torch.tanh(self.layers[number](x) / scale)
        return x * float(scale) + int(torch.tensor(2))


class TopkConstant(Seeded):
    """The 5 best of 20 anchors, k limited by the static number of anchors, with their features."""

    def forward(self, scores, features):
        k = min(5, int(scores.shape[1]))
        values, index = torch.topk(scores + 0.01 * torch.arange(20), k, dim=1)
        return values, features.gather(1, index[..., None].expand(-1, -1, features.shape[2]))


class LengthMask(Seeded):
    """Sequence means under lengths, which stay tensors, and cut to the longest by a tensor slice."""

    def forward(self, x, lengths):
        steps = torch.arange(x.shape[1], device=x.device)
        inside = (steps[None, :] < lengths[:, None]).to(x.dtype)[..., None]
        mean = (x * inside).sum(dim=1) / inside.sum(dim=1).clamp(min=1)
        ends = torch.cumsum(lengths, dim=0)
        return mean, ends, (x * inside)[:, : lengths.max()]


class TracedPad(Seeded):
    """The length is filled up to a multiple of 4 by arithmetic on x.shape only, which the trace keeps."""

    def forward(self, x):
        pad = -x.shape[1] % 4
        x = functional.pad(x, (0, 0, 0, pad))
        return x.reshape(x.shape[0], -1, 4, 8).amax(dim=2)


class SparseOutput(Seeded):
    """Outputs of data-dependent size which ONNX has: nonzero, masked_select, a boolean index."""

    def forward(self, x):
        mask = x > 0.5
        rows = x[mask.any(dim=1)]
        return torch.nonzero(mask), torch.masked_select(x, mask), rows


class NmsOutput(Seeded):
    """torchvision's nms as an output of data-dependent size, with the kept boxes."""

    def forward(self, boxes, scores):
        box = corners(boxes)
        keep = torchvision.ops.nms(box, scores, 0.3)
        return keep, box[keep], scores[keep]


class OneHotBare(Seeded):
    """Token histogram by one_hot without num_classes, which takes the largest id plus one."""

    def forward(self, ids):
        return functional.one_hot(ids).float().sum(dim=1)  # <- here


class PackedLstmTensor(Seeded):
    """Sentence encoder: an LSTM over packed sequences, the lengths a tensor, the outputs of a static length."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 6, batch_first=True)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths.clamp(min=1), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=9)[0]


class PackedLstmUntrimmed(PackedLstmTensor):
    """The same without total_length: torch cuts the outputs to the longest sequence, the graph never does."""

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths.clamp(min=1), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]  # <- here


class PackedLstmState(PackedLstmTensor):
    """The same, with the last state as the only output."""

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths.clamp(min=1), batch_first=True, enforce_sorted=False)
        return self.lstm(packed)[1][0]  # <- here


class UnbindTime(Seeded):
    """A running sum by unbind over a dynamic length, the number of steps becoming a Python list's length."""

    def forward(self, x):
        state, out = torch.zeros_like(x[:, 0]), []
        for step in x.unbind(dim=1):  # <- here
            state = 0.5 * state + step
            out.append(state)
        return torch.stack(out, dim=1)


class TensorOfTensor(Seeded):
    """A temperature by torch.tensor of a tensor: a TracerWarning speaks of a constant, but the trace keeps a copy."""

    def forward(self, x):
        return x / (1 + torch.tensor(x.detach().abs().mean()))


class DurationExpand(Seeded):
    """Text to speech: every phoneme repeated by its duration, by repeat_interleave."""

    def forward(self, hidden, durations):
        return torch.repeat_interleave(hidden, durations, dim=0)


class StepLoop(Seeded):
    """Iterative refinement: the number of steps is an input."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(8, 8)

    def forward(self, x, steps):
        for _ in range(int(steps[0])):  # <- here
            x = x + torch.tanh(self.cell(x))
        return x


class RareClip(Seeded):
    """Gradient-clipping style guard: the input is scaled down when its largest magnitude is above 50."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 5)

    def forward(self, x):
        if x.abs().max() > 50:  # <- here
            x = 50 * x / x.abs().max()
        return self.linear(x)


class SwinReverse(Seeded):
    """Swin's window_reverse: the batch size is worked out in Python from the number of windows."""

    def forward(self, x):
        windows = x.view(-1, 2, 4, 2, 4, 3).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 4, 3)
        windows = windows.softmax(dim=-1)
        batch = int(windows.shape[0] / (8 * 8 / 4 / 4))  # <- here
        return windows.view(batch, 2, 2, 4, 4, 3).permute(0, 1, 3, 2, 4, 5).reshape(batch, 8, 8, 3)


class SqrtLength(Seeded):
    """Sum over the sequence divided by the square root of its dynamic length, by math.sqrt."""

    def forward(self, x):
        return x.sum(dim=1) / math.sqrt(x.shape[1])  # <- here


class TimeLoop(Seeded):
    """A GRU cell in a Python loop over a dynamic number of time steps."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 6)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 6)
        for step in range(x.shape[1]):  # <- here
            h = self.cell(x[:, step], h)
        return h


CASES: dict[str, Network] = {
    # The number of boxes kept by NMS becomes a Python int that sizes the padding.
    "nms_count": Network(truth="frozen", make=NmsCount, inputs=["boxes:12,4", "scores:12"], static=True),
    # k of top-k is the number of scores above a threshold.
    "topk_threshold_count": Network(truth="frozen", make=TopkThreshold, inputs=["scores:2,20"]),
    # The quantisation scale is taken from the input by .item().
    "item_scale": Network(truth="frozen", make=ItemScale, inputs=["x:3,8"]),
    # A padded batch is cut at lengths.max().item().
    "trim_to_longest": Network(truth="frozen", make=TrimToLongest, inputs=["x:3,9,8", "lengths:3:int64:9"]),
    # pack_padded_sequence gets the lengths as a Python list.
    "packed_lstm": Network(truth="frozen", make=PackedLstm, inputs=["x:3,9,8", "lengths:3:int64:9"]),
    # A Python branch on the sign of the input's mean.
    "sign_branch": Network(truth="frozen", make=SignBranch, inputs=["x:3,8"]),
    # The sizes of a split come from counts.tolist().
    "tolist_split": Network(truth="frozen", make=TolistSplit, inputs=["frames:12,8", "counts:3:int64:4"], static=True),
    # len() of torch.unique's result is a divisor.
    "unique_count": Network(truth="frozen", make=UniqueCount, inputs=["ids:2,10:int64:20"]),
    # The number of layers run depends on a confidence (while score < threshold).
    "early_exit": Network(truth="frozen", make=EarlyExit, inputs=["x:3,8"]),
    # The input goes through NumPy and comes back as a constant array.
    "numpy_round_trip": Network(truth="frozen", make=NumpyRoundTrip, inputs=["wave:2,32"]),
    # one_hot's number of classes is int(ids.max()) + 1.
    "one_hot_max": Network(truth="frozen", make=OneHotMax, inputs=["ids:2,6:int64:12"]),
    # Experts without tokens in the traced batch are left out of the graph.
    "moe_routing": Network(truth="frozen", make=MoeRouting, inputs=["x:4,8"]),
    # A Python branch on whether any token is the mask token.
    "mask_any": Network(truth="frozen", make=MaskAny, inputs=["ids:2,8:int64:30"]),
    # A Python branch on a dynamic length (more than 64).
    "long_branch": Network(truth="frozen", make=LongBranch, inputs=["x:2,16,8"], dynamic=["x:0,1"]),
    # The padding up to a multiple of 4 is a Python int made from a dynamic length.
    "window_pad": Network(truth="frozen", make=WindowPad, inputs=["x:2,10,8"], dynamic=["x:0,1"]),
    # Assertions, a raise on a wrong width, a raise on NaN, math.sqrt of a static size.
    "shape_checks": Network(truth="true", make=ShapeChecks, inputs=["x:2,6,8"], dynamic=["x:0,1"]),
    # int(x.shape[2]) // 2 and a resize to Python ints, with a static image size.
    "center_crop": Network(truth="true", make=CenterCrop, inputs=["x:2,3,16,16"]),
    # Shifted windows of a static image, the batch kept by view(-1, ...).
    "static_windows": Network(truth="true", make=StaticWindows, inputs=["x:2,8,8,3"]),
    # `if mask is None`, a masked softmax, a boolean mask by torch.where.
    "optional_mask": Network(
        truth="true", make=OptionalMask, inputs=["x:2,6,8", "mask:2,6"], dynamic=["x:0,1", "mask:0,1"]
    ),
    # torch.tensor(3.0) in forward, float() and int() of constants, a loop over static layers.
    "constants_and_layers": Network(truth="true", make=ConstantsAndLayers, inputs=["x:3,8"]),
    # top-k with k limited by a static size through int().
    "topk_constant": Network(truth="true", make=TopkConstant, inputs=["scores:2,20", "features:2,20,4"]),
    # Masks, cumsum and a slice end from lengths that stay tensors.
    "length_mask": Network(
        truth="true", make=LengthMask, inputs=["x:3,9,8", "lengths:3:int64:9"], dynamic=["x:0,1", "lengths:0"]
    ),
    # Padding up to a multiple of 4 by arithmetic on a dynamic x.shape[1] without int().
    "traced_pad": Network(truth="true", make=TracedPad, inputs=["x:2,10,8"], dynamic=["x:0,1"]),
    # nonzero, masked_select and a boolean index as outputs of data-dependent size.
    "sparse_output": Network(truth="true", make=SparseOutput, inputs=["x:5,6"]),
    # torchvision's nms and the kept boxes as outputs of data-dependent size.
    "nms_output": Network(truth="true", make=NmsOutput, inputs=["boxes:12,4", "scores:12"]),
    # one_hot without num_classes: the exporter writes a graph of depth -1, which onnxruntime does not load.
    "one_hot_bare": Network(truth="refused", make=OneHotBare, inputs=["ids:2,6:int64:12"]),
    # pack_padded_sequence gets the lengths as a tensor, pad_packed_sequence a static total_length.
    "packed_lstm_tensor": Network(truth="true", make=PackedLstmTensor, inputs=["x:3,9,8", "lengths:3:int64:9"]),
    # pad_packed_sequence without total_length: the graph is wrong for the traced input too.
    "packed_lstm_untrimmed": Network(truth="frozen", make=PackedLstmUntrimmed, inputs=["x:3,9,8", "lengths:3:int64:9"]),
    # A packed LSTM of which only the last state is used: the exporter raises vector::_M_range_check.
    "packed_lstm_state": Network(truth="refused", make=PackedLstmState, inputs=["x:3,9,8", "lengths:3:int64:9"]),
    # A Python loop over x.unbind(dim=1).
    "unbind_time": Network(truth="frozen", make=UnbindTime, inputs=["x:2,6,8"], dynamic=["x:0,1"]),
    # torch.tensor() of a tensor, which the trace keeps as a copy in spite of its warning.
    "tensor_of_tensor": Network(truth="true", make=TensorOfTensor, inputs=["x:2,6"]),
    # for _ in range(int(n)) with n an input.
    "step_loop": Network(truth="frozen", make=StepLoop, inputs=["x:3,8", "steps:1:int64:6"], dynamic=["x:0"]),
    # repeat_interleave by counts that are an input and stay a tensor.
    "duration_expand": Network(truth="true", make=DurationExpand, inputs=["hidden:6,8", "durations:6:int64:5"]),
    # A Python branch which only large inputs take.
    "rare_clip": Network(truth="frozen", make=RareClip, inputs=["x:3,8"]),
    # The batch is int(windows / windows per image).
    "swin_reverse": Network(truth="frozen", make=SwinReverse, inputs=["x:2,8,8,3"]),
    # math.sqrt of a dynamic length.
    "sqrt_length": Network(truth="frozen", make=SqrtLength, inputs=["x:2,16,8"], dynamic=["x:0,1"]),
    # A Python loop over range(x.shape[1]).
    "time_loop": Network(truth="frozen", make=TimeLoop, inputs=["x:2,6,8"], dynamic=["x:0,1"]),
}


def find_marked_line(network: type) -> int | None:
    """The line at which a value is frozen; None if there is none."""
    lines, first = inspect.getsourcelines(network)
    return next((first + number for number, text in enumerate(lines) if "# <- here" in text), None)
