"""torch_geometric: graphs in a loader, a network of two layers, and the move of a batch."""

import torch
import torch_geometric
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

torch.manual_seed(0)
graphs = [
    Data(x=torch.randn(4, 3), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), y=torch.tensor([i % 2]))
    for i in range(4)
]
first = torch_geometric.nn.GCNConv(3, 8).to("npu")
second = torch_geometric.nn.GCNConv(8, 2).to("npu")
optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
print("cuda", torch_geometric.is_xpu_available() if hasattr(torch_geometric, "is_xpu_available") else False)
for batch in DataLoader(graphs, batch_size=2):
    batch = batch.to("npu")
    out = second(first(batch.x, batch.edge_index).relu(), batch.edge_index)
    out = torch_geometric.nn.global_mean_pool(out, batch.batch)
    loss = torch.nn.functional.cross_entropy(out, batch.y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", f"{loss.item():.5f}")
