"""Mixture-of-experts language model: top-2 routing, index_add_ dispatch and a load balancing loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


class SparseMoE(nn.Module):
    def __init__(self, dim, hidden, num_experts=4, top_k=2):
        super().__init__()
        self.num_experts, self.top_k = num_experts, top_k
        self.gate = nn.Linear(dim, num_experts, bias=False)
        mlps = (nn.Sequential(nn.Linear(dim, hidden), nn.SiLU(), nn.Linear(hidden, dim)) for _ in range(num_experts))
        self.experts = nn.ModuleList(mlps)

    def forward(self, x):
        shape, x = x.shape, x.flatten(0, 1)
        probs = F.softmax(self.gate(x), dim=-1, dtype=torch.float)
        weights, selected = torch.topk(probs, self.top_k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        out = torch.zeros_like(x)
        expert_mask = F.one_hot(selected, self.num_experts).permute(2, 1, 0)
        for e, expert in enumerate(self.experts):
            idx, token = torch.where(expert_mask[e])
            out.index_add_(0, token, expert(x[token]) * weights[token, idx, None])
        tokens_per_expert = expert_mask.sum(dim=1).float().mean(dim=1)
        aux = self.num_experts * (tokens_per_expert * probs.mean(0)).sum()
        return out.view(shape), aux


class MoELM(nn.Module):
    def __init__(self, vocab=128, dim=48, layers=2, heads=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(64, dim)
        self.attn = nn.ModuleList(nn.MultiheadAttention(dim, heads, batch_first=True) for _ in range(layers))
        self.moe = nn.ModuleList(SparseMoE(dim, 2 * dim) for _ in range(layers))
        self.norms = nn.ModuleList(nn.RMSNorm(dim) for _ in range(2 * layers + 1))
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        t, aux_total = ids.size(1), 0.0
        x = self.tok(ids) + self.pos(torch.arange(t, device=ids.device))
        mask = torch.triu(torch.ones(t, t, dtype=torch.bool, device=ids.device), diagonal=1)
        for i, (attn, moe) in enumerate(zip(self.attn, self.moe)):
            h = self.norms[2 * i](x)
            x = x + attn(h, h, h, attn_mask=mask, need_weights=False)[0]
            y, aux = moe(self.norms[2 * i + 1](x))
            x, aux_total = x + y, aux_total + aux
        return self.head(self.norms[-1](x)), aux_total


g = torch.Generator().manual_seed(0)
data = (torch.randint(0, 128, (40, 1), generator=g) + 3 * torch.arange(33)) % 128
model = MoELM().to(device)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
for step, batch in enumerate(data.split(8)):
    batch = batch.to(device)
    logits, aux = model(batch[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()) + 0.01 * aux
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    print(f"step {step} loss {loss.item():.6f} aux {aux.item():.6f}")
