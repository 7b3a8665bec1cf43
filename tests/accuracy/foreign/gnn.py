"""Node classification (GCN + GAT) and graph classification with pooling in torch_geometric."""

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import BatchNorm, GATConv, GCNConv, global_add_pool, global_max_pool, global_mean_pool
from torch_geometric.utils import add_self_loops, scatter, to_undirected

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def random_graph(g, num_classes=3):
    n = int(torch.randint(12, 24, (1,), generator=g))
    y = torch.randint(0, num_classes, (n,), generator=g)
    same = (y[:, None] == y[None]).float()
    adj = torch.rand(n, n, generator=g) < 0.05 + 0.3 * same
    edge_index = to_undirected(adj.nonzero().t().contiguous(), num_nodes=n)
    x = F.one_hot(y, num_classes).float() + 0.8 * torch.randn(n, num_classes, generator=g)
    graph_y = (torch.bincount(y, minlength=num_classes).argmax()).view(1)
    return Data(x=x, edge_index=edge_index, y=y, graph_y=graph_y)


class Net(torch.nn.Module):
    def __init__(self, in_channels, hidden, num_classes):
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden)
        self.norm = BatchNorm(hidden)
        self.conv2 = GATConv(hidden, hidden // 4, heads=4, dropout=0.1)
        self.node_head = torch.nn.Linear(hidden, num_classes)
        self.graph_head = torch.nn.Linear(3 * hidden + in_channels, num_classes)

    def forward(self, x, edge_index, batch):
        h = F.relu(self.norm(self.conv1(x, edge_index)))
        h = F.dropout(h, p=0.2, training=self.training)
        h = F.elu(self.conv2(h, edge_index))
        loops, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        neighbours = scatter(x[loops[0]], loops[1], dim=0, dim_size=x.size(0), reduce="mean")
        pooled = [global_mean_pool(h, batch), global_max_pool(h, batch), global_add_pool(neighbours, batch)]
        return self.node_head(h), self.graph_head(torch.cat(pooled + [global_add_pool(h, batch)], dim=-1))


g = torch.Generator().manual_seed(0)
loader = DataLoader([random_graph(g) for _ in range(40)], batch_size=8, shuffle=True)
model = Net(3, 32, 3).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

model.train()
for step, data in enumerate(loader):
    data = data.to(device)
    optimizer.zero_grad()
    node_logits, graph_logits = model(data.x, data.edge_index, data.batch)
    loss = F.cross_entropy(node_logits, data.y) + F.nll_loss(F.log_softmax(graph_logits, dim=-1), data.graph_y)
    loss.backward()
    optimizer.step()
    accuracy = (node_logits.argmax(-1) == data.y).float().mean().item()
    print(f"step {step} loss {loss.item():.6f} node acc {accuracy:.4f}")
