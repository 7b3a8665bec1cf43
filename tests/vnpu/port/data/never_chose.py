"""Two ranks that choose no card: all of them stand on the first."""
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
net = torch.nn.Linear(8, 4).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    loss = net(torch.randn(4, 8).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
dist.destroy_process_group()
