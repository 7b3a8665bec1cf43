"""Random damage to the rules' own examples: nothing is raised, and the self-check never has to step in.

A seed from the command line's environment (TORCHPORT_FUZZ_CASES) makes a longer run of the same kind.
"""

from __future__ import annotations

import os
import random

import pytest

from torchport.convert import convert_source
from torchport.rules import Style, list_rules
from torchport.rules.files import file_rules

CASES = int(os.environ.get("TORCHPORT_FUZZ_CASES", "400"))
SEEDS = [(text.encode(), "a.py") for rule in list_rules() for pair in rule.rewrites for text in pair]
SEEDS += [(text.encode(), "a.py") for rule in list_rules() for text in (*rule.reports, *rule.ignores)]
SEEDS += [(text.encode(), name) for rule in file_rules() for name, *texts in rule.rewrites for text in texts]
WORDS = [
    b"cuda",
    b"torch.cuda",
    b"'cuda'",
    b".cuda()",
    b"(",
    b")",
    b"\n",
    b"    ",
    b"f'{",
    b"}'",
    b"import ",
    b"\x00",
    b"from torch import cuda",
    b"\xff",
    b"lambda: ",
    b"*",
    b"async ",
    b"\\\n",
    b"'''",
    b"#",
    b";",
    b"class X:\n",
    b"\r",
    b"=",
    b"match x:\n case ",
    b"global torch\n",
    b"nonlocal x\n",
    b"del torch\n",
    b"x: int = ",
    b":=",
    b"[",
    b"with a as (b,c):\n  ",
    b"super().cuda()",
    b"getattr(torch,'cuda')",
    b"]",
    b"{",
    b"\xef\xbb\xbf",
    b"\x0c",
]


def damaged(generator: random.Random) -> tuple[bytes, str]:
    data, name = generator.choice(SEEDS)
    if generator.random() < 0.6:
        data += generator.choice(SEEDS)[0]
    for _ in range(generator.randint(0, 4)):
        place = generator.randrange(len(data) + 1)
        kind = generator.random()
        if kind < 0.4:
            data = data[:place] + generator.choice(WORDS) + data[place:]
        elif kind < 0.7:
            data = data[:place] + data[place + generator.randint(1, 6) :]
        else:
            start = generator.randrange(len(data) + 1)
            data = data[:place] + data[start : start + generator.randint(1, 30)] + data[place:]
    return data, name


@pytest.mark.parametrize("style", list(Style))
def test_damaged_sources(style: Style) -> None:
    generator = random.Random(style.value)
    changed = 0
    for _ in range(CASES):
        data, name = damaged(generator)
        conversion = convert_source(data, name, style)
        changed += conversion.output != data
        ours = [finding.message for finding in conversion.findings if finding.code == "TP903"]
        assert not ours, (data, ours)
    assert changed > CASES / 50
