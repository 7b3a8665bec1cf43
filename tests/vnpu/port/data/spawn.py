import socket, torch, torch.distributed as dist, torch.multiprocessing as mp, torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def train(r, port):
    torch.cuda.set_device(r)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=r, world_size=2)
    torch.manual_seed(0)
    m = DDP(nn.Linear(8, 2).cuda(r), device_ids=[r]); o = torch.optim.SGD(m.parameters(), 0.1)
    for i in range(6):
        l = m(torch.randn(4, 8).cuda(r)).pow(2).mean(); o.zero_grad(); l.backward(); o.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]
    mp.spawn(train, args=(port,), nprocs=2)
