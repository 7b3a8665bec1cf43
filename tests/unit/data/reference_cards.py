"""Two ranks of the reference in each of the ways in which scripts give them cards, run by test_reference_cards.py.

Each case forks both ranks, with plain torch on the CPU. Prints {case: [what rank 0 says, what rank 1 says]} as JSON:
the last words of an error, or "".
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from torchport.record import reference
from torchport.record.session import describe_failure
from torchport.record.sites import Sites


def train(model, to):
    model(torch.ones(2, 4).to(to)).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)


def never_chosen(rank):
    dist.init_process_group("nccl")
    train(nn.Linear(4, 1).cuda(), "cuda")


def never_chosen_replicas(rank):
    dist.init_process_group()
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1).to("cuda"))
    model(torch.ones(2, 4, device="cuda")).sum().backward()


def same_set_device(rank):
    torch.cuda.set_device(1)
    dist.init_process_group("NCCL")
    dist.broadcast(torch.ones(2).cuda(), 0)


def same_device_id(rank):
    dist.init_process_group("nccl", device_id=torch.device("cuda:1"))


def same_visible(rank):
    os.environ["CUDA_VISIBLE_DEVICES"] = "3"
    dist.init_process_group("nccl")
    dist.barrier()
    dist.all_reduce(torch.ones(2, device="cuda:0"))


def same_in_a_new_group(rank):
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(2))
    dist.all_reduce(torch.ones(2).to(torch.device("cuda", 0)), group=dist.new_group([0, 1], backend="nccl"))


def same_by_number(rank):
    dist.init_process_group("nccl")
    dist.barrier()  # no card yet
    dist.all_reduce(torch.ones(2))
    dist.all_reduce(torch.ones(2).to(0))


def set_device(rank):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    train(nn.Linear(4, 1).cuda(), "cuda")


def device_id(rank):
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    train(nn.Linear(4, 1).cuda(), "cuda")


def local_rank_modulo_count(rank):
    dist.init_process_group("nccl")
    device = torch.device("cuda", rank % torch.cuda.device_count())
    train(nn.Linear(4, 1).to(device), device)


def modulo_count_where_none_is_told(rank):
    """As spawned by a script: nothing says how many there will be, so the script is told of one card."""
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        del os.environ[name]
    dist.init_process_group("nccl", rank=rank, world_size=2, init_method=f"file://{os.environ['MEET']}b")
    train(nn.Linear(4, 1).to(f"cuda:{rank % torch.cuda.device_count()}"), "cuda:0")


def visible_of_its_own(rank):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
    dist.init_process_group("nccl")
    train(nn.Linear(4, 1).cuda(), "cuda")


def other_machines(rank):
    os.environ |= {"GROUP_RANK": str(rank), "LOCAL_WORLD_SIZE": "1"}
    dist.init_process_group("nccl")
    train(nn.Linear(4, 1).cuda(), "cuda")


def gloo(rank):
    dist.init_process_group("gloo")
    train(nn.Linear(4, 1).cuda(), "cuda")


def both_backends_of_the_cpu(rank):
    dist.init_process_group("cpu:gloo,cuda:nccl")
    nn.Linear(4, 1).cuda()
    dist.all_reduce(torch.ones(2))
    nn.parallel.DistributedDataParallel(nn.Linear(4, 1))


def begun_on_the_first(rank):
    torch.ones(1).cuda()
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    train(nn.Linear(4, 1).cuda(), "cuda")


def two_cards_each(rank):
    dist.init_process_group("nccl")
    train(nn.Linear(4, 1).to("cuda:0"), f"cuda:{rank}")


def in_a_block(rank):
    dist.init_process_group("nccl")
    with torch.cuda.device(rank):
        train(nn.Linear(4, 1).cuda(), "cuda")


def ids_of_replicas(rank):
    dist.init_process_group("nccl")
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1).to(rank), device_ids=[rank])
    model(torch.ones(2, 4).to(rank)).sum().backward()


def groups_of_one(rank):
    dist.init_process_group("gloo")
    groups = [dist.new_group([one], backend="nccl") for one in range(2)]
    dist.all_reduce(torch.ones(2).cuda(), group=groups[rank])


def from_a_checkpoint(rank):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    torch.save(torch.ones(2), f"{os.environ['MEET']}{rank}.pt")
    dist.all_reduce(torch.load(f"{os.environ['MEET']}{rank}.pt", map_location=f"cuda:{rank}"))


def premultiplied_sums(rank):
    """gloo has no such operation, by which FSDP2 divides gradients; only NCCL's results are the script's."""
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    half = dist.ReduceOp.PREMUL_SUM(0.5)
    given, part, both = torch.ones(4).cuda() * (rank + 1), torch.empty(2).cuda(), torch.ones(3).cuda()
    dist.reduce_scatter_tensor(part, given, op=half)
    dist.all_reduce(both, half)
    assert part.tolist() == [1.5, 1.5], part
    if hasattr(dist, "reduce_scatter_single"):  # the name in torch 2.13, which FSDP2 calls
        dist.reduce_scatter_single(part.zero_(), given, half)
        assert part.tolist() == [1.5, 1.5], part
    assert given.tolist() == [rank + 1.0] * 4, given
    assert both.tolist() == [1.0] * 3, both


def losses(rank):
    """As accelerate gathers a loss that has a history, which gloo refuses."""
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    loss, both = torch.ones(1, requires_grad=True).cuda() * (rank + 1), torch.empty(2).cuda()
    dist.all_gather_into_tensor(both, loss)
    assert both.tolist() == [1.0, 2.0], both
    dist.all_reduce(loss)
    assert loss.tolist() == [3.0], loss


def shards(rank):
    """FSDP in its older form, which refuses a CPU that nobody has named."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    for place in (torch.cuda.current_device(), torch.device("cuda", rank), None):
        model = torch.nn.Linear(3, 3)
        torch.nn.init.ones_(model.weight)
        model = model if place is not None else model.to(rank)
        model = FullyShardedDataParallel(model, device_id=place, sync_module_states=True)
        model(torch.ones(1, 3).cuda()).sum().backward()
        norm = model.clip_grad_norm_(100.0)
        assert abs(norm.item() - 12**0.5) < 1e-5, norm


REFUSED = (
    never_chosen,
    never_chosen_replicas,
    same_set_device,
    same_device_id,
    same_visible,
    same_in_a_new_group,
    same_by_number,
)
SILENT = (
    set_device,
    device_id,
    local_rank_modulo_count,
    modulo_count_where_none_is_told,
    visible_of_its_own,
    other_machines,
    gloo,
    both_backends_of_the_cpu,
    begun_on_the_first,
    two_cards_each,
    in_a_block,
    ids_of_replicas,
    groups_of_one,
    from_a_checkpoint,
    premultiplied_sums,
    losses,
    shards,
)


def run_rank(case, rank, folder):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "MEET": f"{folder}/meet"}
    store = dist.FileStore(f"{folder}/store", 2)
    plain = dist.init_process_group

    def init_process_group(*args, **kwargs):
        if "init_method" not in kwargs:
            kwargs |= {"store": store, "rank": rank, "world_size": 2}
        plain(*args, **kwargs)

    said = ""
    try:
        reference.apply_reference_patches(torch)
        plain, dist.init_process_group = dist.init_process_group, init_process_group
        case(rank)
    except Exception as error:
        said = f"{type(error).__name__}: {str(error).splitlines()[-1]}"
        assert not describe_failure(error, Sites())["ours"], "it would be told as a failure of the recorder"
    Path(folder, f"said{rank}").write_text(said)
    os._exit(0)


def run_case(case):
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(2):
            child = os.fork()
            if not child:
                run_rank(case, rank, folder)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        return [Path(folder, f"said{rank}").read_text() for rank in range(2)]


if __name__ == "__main__":
    json.dump({case.__name__: run_case(case) for case in (*REFUSED, *SILENT)}, sys.stdout)
