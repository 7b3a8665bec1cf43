"""pytorch_metric_learning: a miner and a loss."""

import torch
from pytorch_metric_learning import losses, miners

torch.manual_seed(0)
points = torch.nn.functional.normalize(torch.randn(8, 4)).to("npu").requires_grad_()
labels = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3], device="npu")
pairs = miners.MultiSimilarityMiner()(points, labels)
loss = losses.TripletMarginLoss()(points, labels, pairs)
loss.backward()
print("loss", f"{loss.item():.5f}", f"{points.grad.norm().item():.4f}")
