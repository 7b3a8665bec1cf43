"""References of operators that the CPU does not have: what the NPU computes is right by them, and what is not is seen."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from torchport.compare.replay import replay

PROGRAM = Path(__file__).parent / "data" / "referenced_operators.py"


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recordings")
    command = [sys.executable, "-m", "torchport", "run", "--as-is", "-q", str(PROGRAM), str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=115)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return folder


def native(rows):
    return [row for row in rows if row.operator.startswith("npu::")]


PARTS = {
    "attention": {
        "npu_fusion_attention": 13, "npu_fusion_attention_grad": 13, "npu_fusion_attention_v2": 5,
        "npu_fusion_attention_grad_v2": 5,
    },
    "recurrent": {
        "_lstm_npu": 2, "_lstm_npu_backward": 2, "npu_lstm": 5, "npu_lstm_backward": 5, "_gru_npu": 3,
        "_gru_npu_backward": 3,
    },
    "losses": {"npu_binary_cross_entropy_with_logits_backward": 3},
}  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_what_an_npu_alone_has_is_judged_and_right(recordings, part):
    found = replay(recordings / part)
    rows = native(found.rows)
    counts = Counter(row.operator.removeprefix("npu::") for row in rows if row.kind == "judged")
    assert counts == PARTS[part]
    assert [row for row in rows if row.kind != "judged"] == []
    assert [(row.call, row.operator, row.score) for row in found.wrong] == []
    assert max(row.score for row in rows) < 5
    assert found.share > 0.93


@pytest.mark.parametrize("part", PARTS)
def test_each_of_them_that_is_off_by_a_thousandth_is_wrong(recordings, part):
    found = replay(recordings / f"{part}_wrong")
    rows = native(found.rows)
    assert len(rows) == sum(PARTS[part].values())
    assert [row.operator for row in rows if not row.wrong] == []
    # So is nothing that was computed from them.
    assert {row.operator for row in replay(recordings / f"{part}_wrong").wrong} == {
        row.operator for row in rows
    }


def test_what_is_dropped_is_not_judged(recordings):
    found = replay(recordings / "dropped")
    forward, backward = native(found.rows)
    # Maximum and sum of the softmax are.
    assert forward.kind == "judged"
    assert 0 < forward.unseen < forward.bytes
    assert (backward.kind, backward.why) == ("not judged", "its dropout draws on the device")
