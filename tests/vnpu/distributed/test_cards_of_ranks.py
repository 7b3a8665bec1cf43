"""Two ranks as scripts give them cards: four forms with one card for both, which HCCL refuses in its words, and eight
with cards of their own, of which nothing is said.

Each form is a script: what HCCL does is seen in two forks of a process that has imported torch_npu, and `analyze` reads
its text.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import forked
import pytest

from torchport import vnpu
from torchport.analyze.project import analyze_tree

REFUSED = (
    "Ranktable_Detect_Failed(EI0015)",
    " has the same physical device ID 0 as the rank ",
    "set_device(int(os.env",
)
HEAD = """\
import os
import torch
import torch_npu
import torch.distributed as dist
rank = int(os.environ["RANK"])
"""
REDUCE = 'x = torch.ones(2).to("npu")\ndist.all_reduce(x)\n'
ONE_CARD = {
    "root info": f'dist.init_process_group("hccl")\n{REDUCE}',
    "rank table": f'dist.init_process_group("hccl")\n{REDUCE}',
    "device_id": f'dist.init_process_group("hccl", device_id=torch.device("npu:0"))\n{REDUCE}',
}
OWN_CARDS = {
    "set_device": f'torch.npu.set_device(rank)\ndist.init_process_group("hccl")\n{REDUCE}',
    "device_id": 'dist.init_process_group("hccl", device_id=torch.device("npu", rank))\n'
    'x = torch.ones(2).to(f"npu:{rank}")\ndist.all_reduce(x)\n',
    "index": 'dist.init_process_group("hccl")\nx = torch.ones(2).npu(rank)\ndist.all_reduce(x)\n',
    "block": 'dist.init_process_group("hccl")\nwith torch.npu.device(rank):\n'
    '    x = torch.ones(2).to("npu")\n    dist.all_reduce(x)\n',
    "DistributedDataParallel": 'torch.npu.set_device(rank)\ndist.init_process_group("hccl")\n'
    "net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1).to(rank), device_ids=[rank])\n"
    'x = net(torch.ones(2).to(f"npu:{rank}"))\n',
    "one visible": f'os.environ["ASCEND_RT_VISIBLE_DEVICES"] = str(rank)\ndist.init_process_group("hccl")\n{REDUCE}',
    "rank table": f'torch.npu.set_device(rank)\ndist.init_process_group("hccl")\n{REDUCE}',
}
# Starts both ranks and prints what each says.
BOTH = """
import json, os, traceback
FORM, RANKS = {form!r}, []
for rank in range(2):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.environ |= {{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}}
        said = "reduced"
        try:
            exec(FORM, names := {{}})
            if "all_reduce" in FORM:
                said = str(names["x"].tolist())
        except Exception:
            said = traceback.format_exc()
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    RANKS.append(read)
print(json.dumps([open(read).read() for read in RANKS]))
"""
SPAWNED = """\
import os
import torch
import torch_npu
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank, own):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    if own:
        torch.npu.set_device(rank)
    dist.init_process_group("hccl")
    x = torch.ones(2).npu()
    dist.all_reduce(x)
    print(f"reduced {x.tolist()}\\n", end="", flush=True)

if __name__ == "__main__":
    import sys
    mp.spawn(work, (len(sys.argv) > 1,), nprocs=2)
"""


def run_form(form: str, **variables: str) -> list[str]:
    """The words of both ranks."""
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "VNPU_DEVICES": "2"}
    ended = forked.python(BOTH.format(form=HEAD + form), **variables)
    said: list[str] = json.loads(ended.stdout.splitlines()[-1])
    return said


def write_table(folder: Path, devices: tuple[int, int]) -> dict[str, str]:
    rows = [
        {"device_id": str(device), "device_ip": f"10.0.0.{rank}", "rank_id": str(rank)}
        for rank, device in enumerate(devices)
    ]
    table = {
        "version": "1.0",
        "server_count": "1",
        "server_list": [{"server_id": "127.0.0.1", "device": rows}],
        "status": "completed",
    }
    (folder / "ranks.json").write_text(json.dumps(table))
    return {"RANK_TABLE_FILE": str(folder / "ranks.json")}


@pytest.mark.parametrize("name", ONE_CARD)
def test_one_card_is_refused(name: str, tmp_path: Path) -> None:
    said = run_form(ONE_CARD[name], **(write_table(tmp_path, (0, 1)) if name == "rank table" else {}))
    assert [words for one in said for words in REFUSED if words not in one] == [], said


@pytest.mark.parametrize("name", OWN_CARDS)
def test_cards_of_their_own_are_silent(name: str, tmp_path: Path) -> None:
    said = run_form(OWN_CARDS[name], **(write_table(tmp_path, (0, 1)) if name == "rank table" else {}))
    assert said == ["[2.0, 2.0]" if "all_reduce" in OWN_CARDS[name] else "reduced"] * 2
    assert "TP203" not in _analyze(tmp_path, HEAD + OWN_CARDS[name])


@pytest.mark.parametrize("own", [False, pytest.param(True, marks=pytest.mark.ports)])
def test_spawned_ranks(own: bool, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SPAWNED)
    environment = {**os.environ, **vnpu.environment(), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    environment |= {"OMP_NUM_THREADS": "1", "VNPU_DEVICES": "2"}
    ended = subprocess.run(
        [sys.executable, str(script), *["own"] * own], env=environment, capture_output=True, text=True, check=False
    )
    assert "TP203" not in _analyze(tmp_path, SPAWNED)
    if own:
        assert ended.stdout.count("reduced [2.0, 2.0]") == 2, ended.stderr
    else:
        assert ended.returncode == 1
        assert [words for words in REFUSED if words not in ended.stderr] == []


def _analyze(folder: Path, text: str) -> set[str]:
    (folder / "train.py").write_text(text)
    return {finding.code for finding in analyze_tree(folder / "train.py").findings}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
