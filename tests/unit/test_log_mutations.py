"""The same failure in another log: the first cause stays the same whatever the numbers, the paths, the launcher, the
colours or the terminal's width are, and however much of a healthy rank stands in between."""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from torchport.diagnose import diagnose_logs, diagnose_text, reading

LOGS = Path(__file__).parent / "data/logs"
CASES = {
    **tomllib.loads((LOGS / "set.toml").read_text("utf-8")),
    **tomllib.loads((LOGS.parent / "injected/set.toml").read_text("utf-8")),
}
# As 12 launchers and loggers mark the lines of a process.
PREFIXES = (
    "[rank3]: ",  # torch
    "[default3]:",  # torchrun --tee
    "(RayTrainWorker pid=4410, ip=10.0.0.7) ",  # ray
    "(EngineCore_DP0 pid=4410) ",  # vllm
    "worker-2  | ",  # docker compose
    "[1,3]<stderr>:",  # mpirun --tag-output
    "3: ",  # srun --label
    "10.0.0.7: ",  # pdsh, deepspeed
    "2025-06-25T10:45:23.586187123Z ",  # kubectl logs --timestamps
    "[pod/trainer-worker-0/pytorch] ",  # kubectl logs --prefix
    "trainer-worker-0 ",  # stern
    "ERROR 06-25 10:45:23 [multiproc_executor.py:487] ",  # vllm's logger
)
HEALTHY = "[rank7]: iteration {at}/ 5000 | lm loss: {loss:.4E} | loss scale: 65536.0 | grad norm: 1.203"


def read(name: str) -> str | None:
    """The text of a case of one file; None for one of several."""
    files = [path for path in LOGS.parent.rglob("*.*") if path.stem == name and path.suffix in (".txt", ".log")]
    return files[0].read_text("utf-8") if len(files) == 1 else None


TEXTS = {name: text for name, row in CASES.items() if row["cause"] and (text := read(name)) is not None}


def change_numbers(text: str, draw: random.Random) -> str:
    text = re.sub(r"\b0x[0-9a-f]{6,16}\b", lambda _: f"0x{draw.getrandbits(44):x}", text)
    text = re.sub(r"(\bline |\.(?:cpp|cc|h|py):)\d+", lambda match: f"{match[1]}{draw.randrange(10, 4000)}", text)
    pids = {}
    return re.sub(
        r"((?:PID: ?|pid=|\(pid: |pid\(s\) |process ))(\d{2,7})\b",
        lambda match: f"{match[1]}{pids.setdefault(match[2], draw.randrange(100, 4_000_000))}",
        text,
    )


def change_paths(text: str, draw: random.Random) -> str:
    home = draw.choice(["/home/张三/大模型/", "/data/my experiments/run-7/", "/root/.cache/p.2/"])
    text = re.sub(r"/job/", home, text)
    return re.sub(r"/env/lib/python3\.\d+", "/opt/miniconda3/envs/npu-2.5/lib/python3.10", text)


def change_ranks(text: str, draw: random.Random) -> str:
    more = draw.choice([8, 16, 1024])
    return re.sub(
        r"(\[rank|RankID:|\[Rank |local_rank: |Rank |rank )(\d{1,4})\b",
        lambda match: f"{match[1]}{int(match[2]) + more}",
        text,
    )


def interleave(text: str, draw: random.Random) -> str:
    """Lines of a rank that trains on, in between."""
    found = []
    for at, line in enumerate(text.splitlines()):
        found.append(line)
        if draw.random() < 0.3:
            found.append(HEALTHY.format(at=at, loss=9 - at / 100))
    return "\n".join(found) + "\n"


def wrap(text: str, draw: random.Random) -> str:
    """As a terminal cuts lines, and a copy of its screen keeps them; one or two cut lines could be anything."""
    width = draw.choice([80, 100, 132])
    if sum(len(line) // width for line in text.splitlines()) < reading.CUT:
        return text
    parts = [line[at : at + width] for line in text.splitlines() for at in range(0, max(len(line), 1), width)]
    return "\n".join(parts) + "\n"


def color(text: str, draw: random.Random) -> str:
    return "".join(f"\x1b[{draw.choice([31, 33, 36, '1;31'])}m{line}\x1b[0m\n" for line in text.splitlines())


def cut(text: str, draw: random.Random) -> str:
    """Cut at either end, where no line of a row stands."""
    lines = text.splitlines()
    places = [place["line"] for finding in diagnose_text(text).findings for place in finding.evidence["proof"]]
    first, last = min(places), max(places)
    return "\n".join(lines[draw.randrange(first) : draw.randrange(last, len(lines) + 1)]) + "\n"


def carriage(text: str, draw: random.Random) -> str:
    """Behind a bar that is drawn over."""
    bar = "".join(f"\r{at * 10}%|{'#' * at:<10}| {at}/10 [00:0{at}<00:05, 1.20it/s]" for at in range(7))
    return f"{bar}\n{text}".replace("\n", "\r\n") if draw.random() < 0.5 else f"{bar}\n{text}"


MUTATIONS: Sequence[Callable[[str, random.Random], str]] = (
    change_numbers,
    change_paths,
    change_ranks,
    interleave,
    wrap,
    color,
    cut,
    carriage,
)


def answer(text: str) -> str:
    return str(diagnose_text(text).data["row"])


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.__name__)
def test_a_mutation_keeps_the_cause(mutation: Callable[[str, random.Random], str]) -> None:
    wrong = {}
    for name, text in TEXTS.items():
        mutated = mutation(text, random.Random(name))
        if (found := answer(mutated)) != CASES[name]["cause"]:
            wrong[name] = (CASES[name]["cause"], found)
    assert len(TEXTS) > 50
    assert wrong == {}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_keeps_the_cause(prefix: str) -> None:
    wrong = {}
    for name, text in TEXTS.items():
        mutated = "".join(f"{prefix}{line}\n" for line in text.splitlines())
        if (found := answer(mutated)) != CASES[name]["cause"]:
            wrong[name] = (CASES[name]["cause"], found)
    assert wrong == {}


def test_all_mutations_together() -> None:
    wrong = {}
    for name, text in TEXTS.items():
        draw = random.Random(name)
        for mutation in (change_numbers, change_paths, interleave, color):
            text = mutation(text, draw)
        if (found := answer(text)) != CASES[name]["cause"]:
            wrong[name] = (CASES[name]["cause"], found)
    assert wrong == {}


def test_a_mutation_changes_the_text() -> None:
    """None of them is a test of the same text again."""
    for mutation in MUTATIONS:
        changed = sum(mutation(text, random.Random(name)) != text for name, text in TEXTS.items())
        assert changed > len(TEXTS) / 5, mutation.__name__


def test_logs_that_are_packed(tmp_path: Path) -> None:
    import bz2
    import gzip
    import lzma

    text = TEXTS["full_device"] if "full_device" in TEXTS else next(iter(TEXTS.values()))
    wanted = answer(text)
    for name, pack in (("a.log.gz", gzip.compress), ("a.log.bz2", bz2.compress), ("plog.1.xz", lzma.compress)):
        (tmp_path / name).write_bytes(pack(text.encode()))
        assert diagnose_logs(str(tmp_path / name), None).data["row"] == wanted
    (tmp_path / "torn.gz").write_bytes(gzip.compress(text.encode() * 50)[:-40])
    assert "torn.gz was not read" in str(diagnose_logs(str(tmp_path), None).findings)
