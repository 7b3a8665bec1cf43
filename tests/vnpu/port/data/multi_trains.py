import torch
from torch import nn
DEVICE = "cuda"
class Trainer:
    def __init__(self, model, device="cuda:0", rank=0):
        self.model = model.to(device)
        self.dev = torch.device(type="cuda", index=rank)
        self.stream = torch.cuda.Stream(device=self.dev)
    def step(self, batch):
        batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
        self.stream.wait_stream(torch.cuda.current_stream())  # the batch is made there
        with torch.cuda.stream(self.stream), torch.cuda.amp.autocast(dtype=torch.float16):
            loss = self.model(batch["x"]).mean()
        if loss.is_cuda: torch.cuda.current_stream().wait_stream(self.stream)
        return loss
def dev(args): return f"cuda:{args.gpu}" if args.gpu >= 0 else "cpu"
x = getattr(torch, "cuda")
cfg = {"device": "cuda", "name": "cuda-run", "backend": "nccl"}
print("running on cuda")
torch.set_default_tensor_type("torch.cuda.FloatTensor")
if "cuda" in str(x): pass
ckpt = torch.load("cuda_model.pt", map_location="cuda")
ckpt = torch.load("m.pt", map_location=lambda s, l: s.cuda(0))
assert torch.cuda.is_available(), "needs CUDA"
torch.cuda.manual_seed_all(0)
mem = torch.cuda.mem_get_info()[0]
tf = torch.cuda.get_device_name(0)
if "A100" in tf: pass
torch.backends.cuda.enable_flash_sdp(False)
with torch.backends.cudnn.flags(enabled=False): pass
t0 = torch.cuda.Event(enable_timing=True)
net = nn.Linear(2, 2).to("cuda", torch.bfloat16)
def collate(b): return torch.stack(b).to(DEVICE)
trainer = Trainer(nn.Linear(4, 1))
optimizer = torch.optim.SGD(trainer.model.parameters(), 0.1)
for i in range(6):
    loss = trainer.step({"x": torch.randn(8, 4)})
    optimizer.zero_grad(); loss.backward(); optimizer.step(); print(i, loss.item())
