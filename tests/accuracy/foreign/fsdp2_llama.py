"""FSDP2 (fully_shard) training of a small Llama-like model; torchrun --standalone --nproc_per_node=2 fsdp2_llama.py"""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.attn_norm, self.mlp_norm = nn.RMSNorm(dim, eps=1e-5), nn.RMSNorm(dim, eps=1e-5)
        self.wqkv, self.wo = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.w1, self.w3 = nn.Linear(dim, 2 * dim, bias=False), nn.Linear(dim, 2 * dim, bias=False)
        self.w2 = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        q, k, v = self.wqkv(self.attn_norm(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = (z * cos + torch.cat([-z.chunk(2, -1)[1], z.chunk(2, -1)[0]], dim=-1) * sin for z in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(y.transpose(1, 2).reshape(b, t, d))
        h = self.mlp_norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Llama(nn.Module):
    def __init__(self, vocab=128, dim=64, heads=4, depth=2):
        super().__init__()
        self.head_dim, self.tok = dim // heads, nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.norm, self.output = nn.RMSNorm(dim, eps=1e-5), nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        inv = 10000.0 ** (-torch.arange(0, self.head_dim, 2, device=ids.device) / self.head_dim)
        angle = torch.outer(torch.arange(ids.size(1), device=ids.device), inv).repeat(1, 2)
        x = self.tok(ids)
        for layer in self.layers:
            x = layer(x, angle.cos(), angle.sin())
        return self.output(self.norm(x))


rank, use_cuda = int(os.environ["LOCAL_RANK"]), torch.cuda.is_available()
if use_cuda:
    torch.cuda.set_device(rank)
device = torch.device("cuda", rank) if use_cuda else torch.device("cpu")
dist.init_process_group("nccl" if use_cuda else "gloo")
torch.manual_seed(0)
model = Llama().to(device)
mesh = dist.device_mesh.init_device_mesh(device.type, (dist.get_world_size(),))
for module in [*model.layers, model]:
    fully_shard(module, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
g = torch.Generator().manual_seed(100 + rank)
for step in range(4):
    ids = ((torch.randint(0, 128, (4, 1), generator=g) + 5 * torch.arange(33)) % 128).to(device)
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    mean_loss = loss.detach() / dist.get_world_size()
    dist.all_reduce(mean_loss)
    if rank == 0:
        print(f"step {step} loss {mean_loss.item():.6f}", flush=True)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
with tempfile.TemporaryDirectory() as folder:
    shard = {name: p.to_local().cpu() for name, p in model.state_dict().items()}
    torch.save({"model": shard, "step": step}, os.path.join(folder, f"rank{rank}.pt"))
dist.destroy_process_group()
