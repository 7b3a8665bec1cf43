# Mixed precision training through a tiny graph compiler built on torch.fx:
# trace -> lower to primitives -> autocast transform -> run.
import sys

import torch
import torch.fx as fx
from torch import nn

FAULT = "--fault" in sys.argv[1:]


# ---------------------------------------------------------------- compiler
class prims:
    @staticmethod
    def linear(x, w, b=None):
        y = torch.matmul(x, w.t())
        return y if b is None else y + b


fx.wrap("prims_linear")


def prims_linear(x, w, b=None):
    return prims.linear(x, w, b)


def to_dtype(t, dtype):
    return t.to(dtype) if torch.is_tensor(t) and t.is_floating_point() else t


TORCH_SYMBOLS = {torch.matmul, torch.bmm, torch._C._nn.linear, torch.conv2d}
PRIM_SYMBOLS = {prims_linear}


class DeepTracer(fx.Tracer):
    def is_leaf_module(self, m, qualname):
        return isinstance(m, (nn.LayerNorm, nn.GELU))


def lower(graph):
    for n in graph.nodes:
        if n.op == "call_function" and n.target is torch._C._nn.linear:
            n.target = prims_linear
    return graph


def autocast_pass(graph, dtype, only_torch_symbols):
    targets = TORCH_SYMBOLS if only_torch_symbols else TORCH_SYMBOLS | PRIM_SYMBOLS
    for n in list(graph.nodes):
        if n.op == "call_function" and n.target in targets:
            with graph.inserting_before(n):
                n.args = tuple(
                    graph.call_function(to_dtype, (a, dtype)) if isinstance(a, fx.Node) else a for a in n.args
                )
    return graph


class CompiledModule(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.inner = module
        self._cache = {}

    def _compile(self, dtype):
        g = lower(DeepTracer().trace(self.inner))
        if dtype is not None:
            g = autocast_pass(g, dtype, only_torch_symbols=FAULT)
        gm = fx.GraphModule(self.inner, g)
        return gm

    def forward(self, x):
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
        if dtype not in self._cache:
            object.__setattr__(self, "_cache", {**self._cache, dtype: self._compile(dtype)})
        # the graph already carries its casts
        with torch.autocast("cuda", enabled=False):
            return self._cache[dtype](x)


# ---------------------------------------------------------------- model
class Mixer(nn.Module):
    def __init__(self, d=24, hidden=48, classes=5):
        super().__init__()
        self.inp = nn.Linear(12, d)
        self.norm = nn.LayerNorm(d)
        self.fc1 = nn.Linear(d, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, d)
        self.out = nn.Linear(d, classes)

    def forward(self, x):
        h = self.inp(x)
        h = h + self.fc2(self.act(self.fc1(self.norm(h.float()))))
        return self.out(h)


torch.manual_seed(725)
net = Mixer().cuda()
jitted = CompiledModule(net)
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
lossf = nn.CrossEntropyLoss()
centers = torch.randn(5, 12) * 1.5

for step in range(40):
    y = torch.randint(0, 5, (64,))
    x = centers[y] + torch.randn(64, 12)
    x, y = x.cuda(), y.cuda()
    opt.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = jitted(x)
    loss = lossf(logits.float(), y)
    loss.backward()
    opt.step()
    if step % 8 == 0:
        print("step", step, "loss %.4f" % loss.item(), "logits", logits.dtype)
print("done, weight checksum %.6f" % sum(p.double().sum().item() for p in net.cpu().parameters()))
