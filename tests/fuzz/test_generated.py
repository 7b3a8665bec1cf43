"""Programs that hypothesmith generates from Python's grammar, their names and strings replaced by those that rules look for.

`make fuzz` runs it; TORCHPORT_FUZZ_CASES says how many programs, 20,000 by default.
"""

from __future__ import annotations

import io
import keyword
import os
import random
import tokenize
import warnings

import hypothesmith
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from torchport.convert import convert_source
from torchport.rules import Style

CASES = int(os.environ.get("TORCHPORT_FUZZ_CASES", "20000"))
NAMES = [
    "torch",
    "cuda",
    "torch.cuda",
    "is_cuda",
    "device",
    "nn",
    "dist",
    "x.cuda",
    "torch.device",
    "torch.cuda.Stream",
    "backend",
    "args.device",
    "profiler",
    "nvtx",
    "DataParallel",
    "self",
    "npu",
    "torch.cuda.amp.autocast",
]
SIMPLE = [name for name in NAMES if "." not in name]
STRINGS = [
    "'cuda'",
    '"cuda:0"',
    "'nccl'",
    "'cpu:gloo,cuda:nccl'",
    "'torch.cuda.FloatTensor'",
    "'CUDA_VISIBLE_DEVICES'",
    "'''cuda\n'''",
    "f'cuda:{x}'",
    "b'cuda'",
    "r'cuda'",
    "'npu'",
    "'CUDA out of memory'",
    "'cuda' '0'",
]
HEADS = [
    "import torch\n",
    "from torch import cuda\n",
    "import torch.cuda as cuda, torch\n",
    "from torch.cuda import *\n",
    "import torch.distributed as dist\n",
    "from torch import nn, cuda as device\n",
    "# cuda\n",
    "#!cuda\n'cuda'\n",
]
made = {"programs": 0, "changed": 0}


def about_cuda(program: str, seed: int) -> str:
    """The program with other names and strings, where it stays a program; the first line imports torch somehow."""
    generator = random.Random(seed)
    pieces: list[tuple[int, str]] = []
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(program).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return generator.choice(HEADS) + program
    lines = program.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for token in tokens:
        begin, end = (starts[min(row - 1, len(lines))] + column for row, column in (token.start, token.end))
        name = token.type == tokenize.NAME and not keyword.iskeyword(token.string)
        if name or token.type == tokenize.STRING:
            words = STRINGS if not name else NAMES if generator.random() < 0.5 else SIMPLE
            pieces.append((begin, program[:0] + generator.choice(words)))
            pieces.append((end, ""))
    changed = program
    for (begin, word), (end, _) in reversed(list(zip(pieces[::2], pieces[1::2], strict=True))):
        changed = changed[:begin] + word + changed[end:]
    return generator.choice(HEADS) + (changed if compiles(changed.encode("utf-8", "replace")) else program)


def compiles(data: bytes) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(data, "generated", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


@settings(
    max_examples=CASES,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(hypothesmith.from_grammar(), st.integers(0, 2**32), st.sampled_from(list(Style)))
def test_generated_programs(program: str, seed: int, style: Style) -> None:
    data = about_cuda(program, seed).encode("utf-8", "surrogatepass")
    conversion = convert_source(data, "a.py", style)
    ours = [finding.message for finding in conversion.findings if finding.code == "TP903"]
    assert not ours, (data, ours)
    assert compiles(conversion.output) or not compiles(data), data
    assert convert_source(conversion.output, "a.py", style).output == conversion.output, data
    made["programs"] += 1
    made["changed"] += conversion.output != data


def test_most_of_them_were_made_and_some_changed() -> None:
    assert made["programs"] >= 0.9 * CASES  # hypothesmith leaves out programs that its own parser refuses
    assert made["changed"] >= 0.02 * made["programs"]
